#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A VM with a piece of a GPU."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vm
short_description: Make, start, stop and delete VMs of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - VMs by name. What a VM is cannot be changed under its name; only its labels, and whether it runs.
  - O(user_data), O(lease), O(until) and O(provision) with what goes with it are for a new VM and not compared later.
extends_documentation_fragment:
  - vgpuctl.cloud.site
attributes:
  check_mode:
    description: For a new VM the server plans it, and refuses what it would refuse. Nothing is changed.
    support: full
options:
  name:
    description: Its name.
    type: str
    required: true
  tenant:
    description: Whose it is; the context's tenant or V(default) when left out.
    type: str
  state:
    description:
      - V(present) makes it, started, and leaves it as it is when it is there.
      - V(stopped) keeps its claim on a GPU, and what is suspended already stays so.
      - V(suspended) keeps its memory on its host's disk as well; V(started) has it go on from there.
    type: str
    choices: [present, started, stopped, suspended, absent]
    default: present
  profile:
    description: Name of an offering, vGPU type or MIG profile, or V(gpu:N).
    type: str
  image:
    description: "Base image of the tenant or the site; V(tenant/name): one that another tenant shares."
    type: str
  vcpus:
    description: "Virtual CPUs; left out: as its profile says."
    type: int
  memory_mib:
    description: "Memory, in MiB; left out: as its profile says."
    type: int
  disk_bytes:
    description: "Size of its disk, in bytes; left out: as its profile says."
    type: int
  network:
    description: Name of the network that it is on.
    type: str
  more_networks:
    description: Networks of further network cards, in order.
    type: list
    elements: str
    version_added: 0.3.0
  volumes:
    description: Data volumes of the tenant, in this order; name:ro of one that it reads, as several VMs may.
    type: list
    elements: str
    version_added: 0.3.0
  pool:
    description: "Where its disk lies; left out: on its host's own."
    type: str
  encrypted:
    description: Whether its disk is encrypted on its host, with a key of its own that the host does not keep.
    type: bool
  nic:
    description: "A virtual function of a network card near its GPU; left out: what its profile says."
    type: str
    choices: [rdma]
    version_added: 0.3.0
  tpm:
    description: "Whether it has a TPM 2.0 of its own; left out: what its profile says."
    type: bool
    version_added: 0.3.0
  ssh_keys:
    description: OpenSSH public key lines for its first login.
    type: list
    elements: str
  host:
    description: Only this host will do.
    type: str
  gpu:
    description: "Only this GPU will do: its PCI address."
    type: str
  boot_policy:
    description: Who starts it again after a reboot of its host.
    type: str
    choices: [local, ask-controller]
  priority:
    description: At most what the tenant's policy allows.
    type: str
    choices: [low, normal, high]
  addresses:
    description: Address of its card on a network of kind ovn, by the network's name; IPv4, IPv6 or V(IPV4,IPV6).
    type: dict
  user_data:
    description: For cloud-init; kept secret.
    type: str
  with_moves:
    description: When it does not fit, VMs may be moved for it, and it is made when they have.
    type: bool
  provision:
    description: Roles by name; they are run in the order that they need.
    type: list
    elements: str
    version_added: 0.3.0
  no_provision:
    description: Those of its offering are not run.
    type: bool
    version_added: 0.3.0
  provision_settings:
    description: What is said to the roles, by name, each of which knows its type.
    type: dict
    version_added: 0.3.0
  provision_secrets:
    description: Files that roles need, by name, like licence_token; forgotten after the run.
    type: dict
    version_added: 0.3.0
  lease_s:
    description: How long it has its place, in seconds from now.
    type: int
  until:
    description: Or when it gives its place back, like 2026-12-01T10:00Z.
    type: str
  memory:
    description: Or its memory, like V(8GiB); units are binary, V(8GB) is the same.
    type: str
    version_added: 0.3.0
  disk:
    description: Or the size of its disk, like V(20GiB).
    type: str
    version_added: 0.3.0
  preempt:
    description: When a new VM does not fit, stop VMs of lower priority for it; they keep their disks.
    type: bool
    default: false
  labels:
    description: By key; null takes one away, those that are not named stay.
    type: dict
  protected:
    description: Whether the server refuses to delete it; as it is when left out.
    type: bool
    version_added: 0.3.0
  lease:
    description: Or how long a new VM has its place, like V(8h), V(30d) or V(2 weeks).
    type: str
    version_added: 0.3.0
  force:
    description: Power off without asking the guest, for V(stopped).
    type: bool
    default: false
  gpu_was_bad:
    description: For V(absent), that its GPU was bad, and how. The GPU gets new VMs last for a day.
    type: str
    version_added: 0.3.0
  wait:
    description: Whether to wait for what was begun.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: A VM with a quarter of a T4
  vgpuctl.cloud.vm:
    name: train
    profile: GRID T4-4Q
    image: debian-13
    memory: 8GiB
    disk: 40GiB
    lease: 30d
    ssh_keys: ["{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"]
    labels: {team: vision}

- name: Stop it over the weekend
  vgpuctl.cloud.vm: {name: train, state: stopped}

- name: Delete it
  vgpuctl.cloud.vm: {name: train, state: absent}
"""

RETURN = r"""
vm:
  description: As the API answers it, in check mode what is known of it; empty when it is gone.
  returned: success
  type: dict
  sample: {name: train, tenant: default, state: running, profile: GRID T4-4Q, addresses: [10.88.0.5]}
preempted:
  description: VMs that were stopped for it; others' are not named.
  returned: when a VM is made
  type: list
  elements: str
  sample: [default/spare]
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.amounts import bytes_of, mib_of, seconds_of
from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    ApiError,
    answer,
    differing,
    given,
    merged,
    run,
    texts,
)

FORM = {
    "profile": {"type": "str"},
    "image": {"type": "str"},
    "vcpus": {"type": "int"},
    "memory_mib": {"type": "int"},
    "disk_bytes": {"type": "int"},
    "network": {"type": "str"},
    "more_networks": {"type": "list", "elements": "str"},
    "volumes": {"type": "list", "elements": "str"},
    "pool": {"type": "str"},
    "encrypted": {"type": "bool"},
    "nic": {"type": "str", "choices": ["rdma"]},
    "tpm": {"type": "bool"},
    "ssh_keys": {"type": "list", "elements": "str", "no_log": False},
    "host": {"type": "str"},
    "gpu": {"type": "str"},
    "boot_policy": {"type": "str", "choices": ["local", "ask-controller"]},
    "priority": {"type": "str", "choices": ["low", "normal", "high"]},
    "addresses": {"type": "dict"},
    "user_data": {"type": "str", "no_log": True},
    "with_moves": {"type": "bool"},
    "provision": {"type": "list", "elements": "str"},
    "no_provision": {"type": "bool"},
    "provision_settings": {"type": "dict"},
    "provision_secrets": {"type": "dict", "no_log": True},
    "lease_s": {"type": "int"},
    "until": {"type": "str"},
}
ONCE = (
    "ssh_keys", "user_data", "with_moves", "addresses", "host", "gpu", "lease_s",
    "until", "provision", "no_provision", "provision_settings", "provision_secrets",
)  # fmt: skip
"""What only a new VM is given, or what is compared otherwise."""
SHAPE = [name for name in FORM if name not in ONCE]
NEW = (*FORM, "name", "protected", "preempt")
SHOWN = (*SHAPE, "protected", "name", "tenant", "state", "labels")
ON_THE_WAY = ("creating", "adopting", "starting", "stopping", "moving", "deleting")
TYPED = {"memory": ("memory_mib", mib_of), "disk": ("disk_bytes", bytes_of), "lease": ("lease_s", seconds_of)}
"""What people type: the number that the server takes, and what reads it."""
VERBS = {"started": ("start", "running"), "stopped": ("stop", "stopped"), "suspended": ("suspend", "suspended")}


def _power(vm):
    """A suspended VM is a stopped one whose memory is kept."""
    kept = vm["state"] == "stopped" and vm.get("suspended_bytes") is not None
    return "suspended" if kept else vm["state"]


def _look(site):
    return site.find("vm.unknown", "vms", site.params["name"], tenant=site.tenant) or {}


def _settled(site, vm):
    """What somebody began with it is waited for, so that what is compared stays."""
    if vm.get("state") not in ON_THE_WAY or site.check_mode or not vm["operation"]:
        return vm
    site.wait(vm["operation"])
    return _look(site)


def _check_same(site, vm):
    params = site.params
    addresses = params["addresses"] or {}
    own = {card["network"]: (card["address"], card["address6"]) for card in vm["cards"]}
    has = {name: text for name, text in addresses.items() if set(text.split(",")) <= set(own.get(name, ()))}
    different = differing(vm, given(params, SHAPE)) or differing({**dict.fromkeys(addresses), **has}, addresses)
    if not different and params["ssh_keys"] is not None and _material(params["ssh_keys"]) != _material(vm["ssh_keys"]):
        different = "it has other SSH keys"
    if not different and params["user_data"] is not None and not vm["has_user_data"]:
        different = "it was made without user data"
    if different:
        hint = "choose another name, or make that one absent"
        raise ApiError("vm.exists", f"there is already a VM {vm['name']}: {different}", hint)


def _material(keys):
    """Without comments, and each once."""
    return {tuple(line.split()[:2]) for line in keys}


def _create(site):
    params = site.params
    lacking = [name for name in ("profile", "image") if not params[name]]
    if lacking:
        hint = f"{' and '.join(lacking)} to make it"
        site.warn_of_missing(ApiError("vm.unknown", f"no VM is called {params['name']!a}", hint))
    start = params["state"] != "stopped"
    labels = merged({}, texts(params["labels"]))
    body = {**given(params, NEW), "tenant": site.tenant, "labels": labels, "start": start}
    if site.check_mode:
        state = VERBS.get(params["state"], (None, "running"))[1]
        shown = {key: body[key] for key in SHOWN if key in body}
        return {**shown, "state": state}, [] if lacking else _planned(site, body)
    started = site.post("vms", body=body)
    if params["wait"] or params["state"] == "suspended":
        site.wait(started)
        site.wait(started.get("provisioning"))
    vm = _look(site)
    return _change(site, vm) if params["state"] == "suspended" else vm, started["preempted"]


def _planned(site, body):
    """Whom it would stop; refused where the server would refuse it."""
    try:
        return site.post("vms", "plan", body=body)["preempts"]
    except ApiError as error:
        site.warn_of_missing(error)
        return []


def _change(site, vm):
    params = site.params
    labels = merged(vm["labels"], texts(params["labels"]))
    now = _power(vm)
    verb, state = VERBS.get(params["state"], (None, now))
    state = now if (now, state) == ("suspended", "stopped") else state
    protected = vm["protected"] if params["protected"] is None else params["protected"]
    after = {**vm, "labels": labels, "protected": protected, "state": state}
    if site.check_mode:
        return after
    if (labels, protected) != (vm["labels"], vm["protected"]):
        body = {"labels": texts(params["labels"]), "protected": protected}
        site.patch("vms", vm["name"], body=body, tenant=site.tenant)
    if state != now:
        query = {"force": True} if verb == "stop" and params["force"] else {}
        started = site.post("vms", vm["name"], verb, tenant=site.tenant, **query)
        if params["wait"]:
            site.wait(started)
    return _look(site)


def _delete(site, vm):
    if vm and not site.check_mode:
        said = given(site.params, ["gpu_was_bad"])
        started = site.delete("vms", vm["name"], unknown="vm.unknown", tenant=site.tenant, **said)
        if site.params["wait"]:
            site.wait(started)
    return answer(_shown(vm), {}, vm={})


def _read_amounts(params):
    for name, (number, read) in TYPED.items():
        if params[name] is not None:
            try:
                params[number] = read(params[name])
            except ValueError as error:
                raise ApiError(f"{name}.invalid", f"{name} {error}") from error


def _work(site):
    _read_amounts(site.params)
    vm = _look(site)
    if site.params["state"] == "absent":
        return _delete(site, vm)
    vm = _settled(site, vm)
    if not vm:
        after, preempted = _create(site)
        return answer({}, _shown(after), vm=after, preempted=preempted)
    _check_same(site, vm)
    if vm["state"] in ("failed", "stuck", "lost"):
        raise ApiError("vm.busy", f"VM {vm['name']} is {vm['state']}", "make it absent, then present again")
    after = _change(site, vm)
    return answer(_shown(vm), _shown(after), vm=after)


def _shown(vm):
    return {**{key: vm[key] for key in SHOWN if key in vm}, "state": _power(vm)} if vm else {}


def main():
    states = ["present", "started", "stopped", "suspended", "absent"]
    own = {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": states, "default": "present"},
        "preempt": {"type": "bool", "default": False},
        "labels": {"type": "dict"},
        "protected": {"type": "bool"},
        "force": {"type": "bool", "default": False},
        "wait": {"type": "bool", "default": True},
    }
    exclusive = [("memory", "memory_mib"), ("disk", "disk_bytes"), ("lease", "lease_s", "until")]
    typed = {name: {"type": "str"} for name in ("tenant", "gpu_was_bad", *TYPED)}
    run({**FORM, **own, **typed}, _work, mutually_exclusive=exclusive)


if __name__ == "__main__":
    main()
