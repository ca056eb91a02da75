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
  kind:
    description: How the GPU is divided for it.
    type: str
    choices: [time_sliced, mig_backed, mig, passthrough]
  version:
    description: Raised when its meaning changes.
    type: int
    default: 1
  description:
    description: For people.
    type: str
    default: ""
  vgpu_type:
    description: vGPU type as NVIDIA calls it; for V(time_sliced) and V(mig_backed).
    type: str
  vgpu_count:
    description: vGPUs of that type in one VM.
    type: int
    default: 1
  mig_profile:
    description: GPU-instance profile; for V(mig).
    type: str
  gpu_count:
    description: Whole GPUs in one VM; for V(passthrough).
    type: int
    default: 0
  gpu_models:
    description: "GPU models that will do; empty: any that offers the rest."
    type: list
    elements: str
    default: []
  hosts:
    description: Labels that a host must have, all of them, to take a VM of it.
    type: dict
    default: {}
    version_added: 0.3.0
  scheduler:
    description: "How the GPU's time is divided among its vGPUs; left out: the driver's default."
    type: dict
    suboptions:
      policy:
        description: Division of the GPU's time; a GPU has one policy.
        type: str
        choices: [best_effort, equal_share, fixed_share]
        required: true
      time_slice_ms:
        description: "A turn in ms, 1 to 30, of V(equal_share) and V(fixed_share); left out: the driver's default."
        type: int
  parameters:
    description: Parameters of the vGPU plugin.
    type: dict
    suboptions:
      uvm:
        description: "Unified memory works in the guest: MIG-backed types and full-size C types."
        type: bool
        default: false
      frame_rate_limiter:
        description: "Whether frames are limited; works under V(best_effort) only. Left out: the driver's default."
        type: bool
      debugging:
        description: CUDA debuggers work in the guest; rules out live migration.
        type: bool
        default: false
      profiling:
        description: CUDA profilers work in the guest; rules out live migration.
        type: bool
        default: false
      console:
        description: "false: the vGPU draws no VNC console; left out: the driver's default."
        type: bool
  vcpus:
    description: "Of a VM that asks for no number; left out: by its framebuffer."
    type: int
    version_added: 0.3.0
  memory:
    description: The same of its memory, like 32GiB.
    type: str
    version_added: 0.3.0
  disk:
    description: The same of its disk, like 100GiB.
    type: str
    version_added: 0.3.0
  pool:
    description: "Pool that its disk lies in where its request names none; left out: as its tenant's policy says."
    type: str
  disk_bytes_per_s:
    description: "What each disk of its VMs may read and write in a second, in bytes; left out: as much as it can."
    type: int
  disk_iops:
    description: The same in requests.
    type: int
  disk_bytes_per_s_max:
    description: "The same in bytes, in bursts of at most 10 s; left out: no more than the limit."
    type: int
  disk_iops_max:
    description: The same in requests.
    type: int
  mixed_sizes:
    description: "The GPU is in heterogeneous mode: vGPUs of several sizes may share it."
    type: bool
    default: false
  numa:
    description: Whether vCPUs and memory come from the GPU's NUMA node.
    type: str
    choices: [any, prefer, strict]
    default: prefer
  cpu:
    description: Whether vCPUs have CPUs of their own.
    type: str
    choices: [shared, pinned]
    default: shared
  hugepages:
    description: "Huge pages that the VM's memory is made of, all of it; left out: ordinary ones."
    type: str
    choices: [2M, 1G]
  firmware:
    description: "What its guests boot by; V(uefi): without Secure Boot."
    type: str
    choices: [bios, uefi]
    default: bios
  tpm:
    description: Whether its VMs have a TPM 2.0 each, unless one is made without.
    type: bool
    default: false
  nic:
    description: "A virtual function of a network card near the GPU; left out: what is asked for with the VM."
    type: str
    choices: [rdma]
  anti_affinity:
    description: What two VMs of this offering and tenant may not share.
    type: str
    choices: [none, gpu, host]
    default: none
  migratable:
    description: Whether the VM may be moved while it runs.
    type: bool
    default: false
  provision:
    description: Roles that are run in the guest of a new VM, as V(vm provision) has them.
    type: list
    elements: str
    default: []
  provision_settings:
    description: What is said to these roles, by name; what is said with the VM goes before it.
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
from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import answer, run, texts

FORM = {
    "kind": {"type": "str", "choices": ["time_sliced", "mig_backed", "mig", "passthrough"]},
    "version": {"type": "int", "default": 1},
    "description": {"type": "str", "default": ""},
    "vgpu_type": {"type": "str"},
    "vgpu_count": {"type": "int", "default": 1},
    "mig_profile": {"type": "str"},
    "gpu_count": {"type": "int", "default": 0},
    "gpu_models": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "dict", "default": {}},
    "scheduler": {
        "type": "dict",
        "options": {
            "policy": {"type": "str", "choices": ["best_effort", "equal_share", "fixed_share"], "required": True},
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
    "pool": {"type": "str"},
    "disk_bytes_per_s": {"type": "int"},
    "disk_iops": {"type": "int"},
    "disk_bytes_per_s_max": {"type": "int"},
    "disk_iops_max": {"type": "int"},
    "mixed_sizes": {"type": "bool", "default": False},
    "numa": {"type": "str", "choices": ["any", "prefer", "strict"], "default": "prefer"},
    "cpu": {"type": "str", "choices": ["shared", "pinned"], "default": "shared"},
    "hugepages": {"type": "str", "choices": ["2M", "1G"]},
    "firmware": {"type": "str", "choices": ["bios", "uefi"], "default": "bios"},
    "tpm": {"type": "bool", "default": False},
    "nic": {"type": "str", "choices": ["rdma"]},
    "anti_affinity": {"type": "str", "choices": ["none", "gpu", "host"], "default": "none"},
    "migratable": {"type": "bool", "default": False},
    "provision": {"type": "list", "elements": "str", "default": []},
    "provision_settings": {"type": "dict", "default": {}},
}
NO_PARAMETERS = {name: option.get("default") for name, option in FORM["parameters"]["options"].items()}


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
            site.delete("offerings", name, unknown="offering.unknown")
        return answer(before, {}, offering={})
    wanted = {"name": name, **{key: params[key] for key in FORM}}
    wanted["parameters"] = wanted["parameters"] or NO_PARAMETERS
    wanted["hosts"] = texts(wanted["hosts"])
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
