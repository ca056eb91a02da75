#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An offering of the site."""

from __future__ import annotations

DOCUMENTATION = r"""
module: offering
short_description: Add, change and remove offerings of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - What VMs can ask for as their profile. An offering is given whole; what is left out has its default, also
    when it was there with another value.
  - One that a VM has can be neither changed nor removed.
extends_documentation_fragment:
  - vgpuctl.cloud.site
options:
  name:
    description: What O(vgpuctl.cloud.vm#module:profile) takes.
    type: str
    required: true
  state:
    description: Whether it is there.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: Raise it when the meaning changes.
    type: int
    default: 1
  description:
    description: For people.
    type: str
    default: ""
  kind:
    description: How the GPU is divided; needed for V(present).
    type: str
    choices: [time_sliced, mig_backed, mig, passthrough]
  vgpu_type:
    description: NVIDIA's name; for V(time_sliced) and V(mig_backed).
    type: str
  vgpu_count:
    description: vGPUs of that type in one VM.
    type: int
    default: 1
  mig_profile:
    description: GPU instance profile; for V(mig).
    type: str
  gpu_count:
    description: Whole GPUs; for V(passthrough).
    type: int
    default: 0
  gpu_models:
    description: GPU models that will do; any when empty.
    type: list
    elements: str
    default: []
  scheduler:
    description: How the GPU's time is divided among its vGPUs; the driver's default when left out.
    type: dict
    suboptions:
      policy:
        description: A GPU has one policy.
        type: str
        required: true
        choices: [best_effort, equal_share, fixed_share]
      time_slice_ms:
        description: From 1 to 30; for V(equal_share) and V(fixed_share).
        type: int
  parameters:
    description: Of the vGPU plugin.
    type: dict
    suboptions:
      uvm:
        description: Unified memory.
        type: bool
        default: false
      frame_rate_limiter:
        description: Works under V(best_effort) only.
        type: bool
      debugging:
        description: CUDA debuggers in the guest; rules out live migration.
        type: bool
        default: false
      profiling:
        description: CUDA profilers in the guest; rules out live migration.
        type: bool
        default: false
      console:
        description: Whether the vGPU draws the VM's VNC console.
        type: bool
  vcpus:
    description: Of a VM for which none are asked; by its framebuffer when left out, and so are the next two.
    type: int
    version_added: 0.3.0
  memory:
    description: Memory of such a VM, like V(32GiB).
    type: str
    version_added: 0.3.0
  disk:
    description: Disk of such a VM, like V(100GiB).
    type: str
    version_added: 0.3.0
  mixed_sizes:
    description: Needs a GPU in heterogeneous mode.
    type: bool
    default: false
  numa:
    description: Whether vCPUs and memory come from the GPU's NUMA node.
    type: str
    choices: [any, prefer, strict]
    default: prefer
  cpu:
    description: Whether vCPUs have processors of their own.
    type: str
    choices: [shared, pinned]
    default: shared
  hugepages:
    description: Size of the huge pages that the VM's memory is made of; ordinary ones otherwise.
    type: str
    choices: [2M, 1G]
  firmware:
    description: What its guests boot by; V(uefi) comes without Secure Boot.
    type: str
    choices: [bios, uefi]
    default: bios
  nic:
    description: A virtual function of a network card near the GPU.
    type: str
    choices: [rdma]
  anti_affinity:
    description: What two VMs of a tenant may not share.
    type: str
    choices: [none, gpu, host]
    default: none
  migratable:
    description: Whether a running VM may be moved.
    type: bool
    default: false
  provision:
    description: Roles that are run in the guest of a new VM.
    type: list
    elements: str
    default: []
  provision_settings:
    description: What is said to these roles, by name; numbers or words.
    type: dict
    default: {}
  unlisted:
    description: The names are newer than the server's tables, so they are not looked up.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: A quarter of a T4
  vgpuctl.cloud.offering:
    name: t4-quarter
    kind: time_sliced
    vgpu_type: GRID T4-4Q
"""

RETURN = r"""
offering:
  description: As the API answers it; empty when it is gone.
  returned: success
  type: dict
  sample: {name: t4-quarter, kind: time_sliced, vgpu_type: GRID T4-4Q}
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.amounts import bytes_of
from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import answer, run

NO_PARAMETERS = {"uvm": False, "frame_rate_limiter": None, "debugging": False, "profiling": False, "console": None}
FORM = {
    "version": {"type": "int", "default": 1},
    "description": {"type": "str", "default": ""},
    "kind": {"type": "str", "choices": ["time_sliced", "mig_backed", "mig", "passthrough"]},
    "vgpu_type": {"type": "str"},
    "vgpu_count": {"type": "int", "default": 1},
    "mig_profile": {"type": "str"},
    "gpu_count": {"type": "int", "default": 0},
    "gpu_models": {"type": "list", "elements": "str", "default": []},
    "scheduler": {
        "type": "dict",
        "options": {
            "policy": {"type": "str", "required": True, "choices": ["best_effort", "equal_share", "fixed_share"]},
            "time_slice_ms": {"type": "int"},
        },
    },
    "parameters": {
        "type": "dict",
        "options": {
            "uvm": {"type": "bool", "default": False},
            "frame_rate_limiter": {"type": "bool"},
            "debugging": {"type": "bool", "default": False},
            "profiling": {"type": "bool", "default": False},
            "console": {"type": "bool"},
        },
    },
    "vcpus": {"type": "int"},
    "memory": {"type": "str"},
    "disk": {"type": "str"},
    "mixed_sizes": {"type": "bool", "default": False},
    "numa": {"type": "str", "choices": ["any", "prefer", "strict"], "default": "prefer"},
    "cpu": {"type": "str", "choices": ["shared", "pinned"], "default": "shared"},
    "hugepages": {"type": "str", "choices": ["2M", "1G"]},
    "firmware": {"type": "str", "choices": ["bios", "uefi"], "default": "bios"},
    "nic": {"type": "str", "choices": ["rdma"]},
    "anti_affinity": {"type": "str", "choices": ["none", "gpu", "host"], "default": "none"},
    "migratable": {"type": "bool", "default": False},
    "provision": {"type": "list", "elements": "str", "default": []},
    "provision_settings": {"type": "dict", "default": {}},
}


def _same_size(there, wanted):
    """The server writes 32GB as 32GiB. What is no size it refuses itself."""
    try:
        return None not in (there, wanted) and bytes_of(there) == bytes_of(wanted)
    except ValueError:
        return False


def _work(site):
    params, name = site.params, site.params["name"]
    before = next((one for one in site.all("offerings") if one["name"] == name), {})
    if params["state"] == "absent":
        if before and not site.check_mode:
            site.delete("offerings", name)
        return answer(before, {}, offering={})
    wanted = {"name": name, **{key: params[key] for key in FORM}}
    wanted["parameters"] = wanted["parameters"] or NO_PARAMETERS
    for size in ("memory", "disk"):
        if _same_size(before.get(size), wanted[size]):
            wanted[size] = before[size]
    if wanted != before and not site.check_mode:
        wanted = site.put("offerings", body={**wanted, "unlisted": params["unlisted"]})
    return answer(before, wanted, offering=wanted)


def main():
    own = {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "unlisted": {"type": "bool", "default": False},
    }
    run({**own, **FORM}, _work, required_if=[("state", "present", ["kind"])])


if __name__ == "__main__":
    main()
