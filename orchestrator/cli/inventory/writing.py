# SPDX-License-Identifier: Apache-2.0
"""Hosts and VMs as Ansible's dynamic inventories are: groups, and variables by name (``_meta``).

Nothing here is a template: Ansible takes what a plugin adds as it is, whatever a host or a tenant has written there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.cli.guest_access import guest_name
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.hosts.host import check_address, check_user
from orchestrator.core.names import check_name

HOSTS: Final = "vgpuctl_hosts"
MAX_PORT: Final = 65535
VMS: Final = "vgpuctl_vms"
_NO_GROUP_LETTER: Final = re.compile(r"[^a-z0-9]+")

Inventory = dict[str, Any]


def ansible_inventory(
    *,
    site: str,
    hosts: Sequence[Json],
    vms: Sequence[Json],
    gpu_map: Json,
    reach: Callable[[Json], Mapping[str, str]],
) -> Inventory:
    """``hosts``: none when the caller may not know of them. ``reach``: Ansible's connection variables of a VM.

    Groups: ``vgpuctl_hosts``, ``vgpuctl_vms``, ``site_…``, ``gpu_model_…``, ``tenant_…``, ``offering_…``, ``state_…``;
    and for those who may see hosts ``host_…`` (the VMs on it), ``driver_…`` and ``label_…`` (hosts).

    :raises Unknown: ``server.malformed``: a name, address, port or user is none; Ansible would hand it to ssh as it is
    """
    _check(hosts, vms)
    groups: dict[str, list[str]] = defaultdict(list)
    variables: dict[str, dict[str, Any]] = {}
    for host in hosts:
        of_host = sorted({gpu["model"] for gpu in host["gpus"]})
        variables[host["name"]] = _host_variables(host, of_host)
        _put(groups, host["name"], _groups_of_host(host, site, of_host))
    models, by_name = _models(gpu_map), {host["name"]: host for host in hosts}
    for vm in vms:
        name = guest_name(vm["name"], vm["tenant"])
        model, below = models.get((vm["tenant"], vm["name"])), by_name.get(vm["host"])
        variables[name] = {**reach(vm), **_vm_variables(vm, model, below)}
        _put(groups, name, _groups_of_vm(vm, site, model, below))
    members = {name: {"hosts": names} for name, names in sorted(groups.items())}
    return {"_meta": {"hostvars": variables}, "all": {"children": list(members)}, **members}


def _check(hosts: Sequence[Json], vms: Sequence[Json]) -> None:
    names = [*((host["name"], "host") for host in hosts), *((vm["name"], "VM") for vm in vms)]
    names += [(vm["tenant"], "tenant") for vm in vms]
    try:
        for name, what in names:
            check_name(_text(name), what=what)
        for host in hosts:
            check_address(_text(host["address"]))
            check_user(_text(host["user"]))
    except InvalidInput as error:
        raise Unknown("server.malformed", f"the server's answer: {error.message}", hint=error.hint) from error
    wrong = [host["name"] for host in hosts if type(host["port"]) is not int or not 1 <= host["port"] <= MAX_PORT]
    if wrong:
        raise Unknown("server.malformed", f"the server's answer: host {wrong[0]} has a port that is none")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _put(groups: dict[str, list[str]], name: str, wanted: Iterable[str]) -> None:
    for group in dict.fromkeys(wanted):
        groups[group].append(name)


def group_name(kind: str, value: str) -> str:
    """``gpu_model_tesla_t4``: letters, digits and ``_`` are what Ansible allows."""
    return f"{kind}_{_NO_GROUP_LETTER.sub('_', value.lower()).strip('_')}"


def _driver(host: Json) -> str | None:
    return (host["software"] or {}).get("nvidia_driver")


def _groups_of_host(host: Json, site: str, models: Iterable[str]) -> Iterator[str]:
    yield HOSTS
    yield group_name("site", site)
    yield group_name("state", host["state"])
    for model in models:
        yield group_name("gpu_model", model)
    if driver := _driver(host):
        yield group_name("driver", driver)
    for key, value in host["labels"].items():
        yield group_name("label", f"{key}_{value}")


def _groups_of_vm(vm: Json, site: str, model: str | None, host: Json | None) -> Iterator[str]:
    yield VMS
    yield group_name("site", site)
    yield group_name("state", vm["state"])
    yield group_name("tenant", vm["tenant"])
    yield group_name("offering", vm["profile"])
    if model is not None:
        yield group_name("gpu_model", model)
    if host is not None:
        yield group_name("host", host["name"])


def _host_variables(host: Json, models: list[str]) -> dict[str, Any]:
    """As ``host import`` reads them, so that an inventory of ours can be taken by another site."""
    managed = [gpu["address"] for gpu in host["gpus"] if gpu["managed"]]
    given = {"vgpuctl_gpus": ",".join(managed)} if managed else {}
    fingerprint = _fingerprint(host["host_key"])
    return {
        "ansible_host": host["address"],
        "ansible_port": host["port"],
        "ansible_user": host["user"],
        **({"vgpuctl_host_key_fingerprint": fingerprint} if fingerprint else {}),
        **given,
        **({"vgpuctl_labels": host["labels"]} if host["labels"] else {}),
        "vgpuctl_kind": "host",
        "vgpuctl_state": host["state"],
        "vgpuctl_cordoned": host["cordoned"],
        "vgpuctl_driver": _driver(host),
        "vgpuctl_gpu_models": models,
        "vgpuctl_vms": host["vms"],
    }


def _vm_variables(vm: Json, model: str | None, host: Json | None) -> dict[str, Any]:
    known = {} if host is None else {"vgpuctl_host": host["name"], "vgpuctl_driver": _driver(host)}
    return {
        "vgpuctl_kind": "vm",
        "vgpuctl_name": vm["name"],
        "vgpuctl_tenant": vm["tenant"],
        "vgpuctl_state": vm["state"],
        "vgpuctl_offering": vm["profile"],
        "vgpuctl_gpu_models": [] if model is None else [model],
        "vgpuctl_addresses": vm["addresses"],
        "vgpuctl_label": vm["label"],
        **known,
    }


def _models(gpu_map: Json) -> dict[tuple[str, str], str]:
    """The model of a VM's GPU, by tenant and name."""
    return {
        (cell["tenant"], cell["vm"]): gpu["model"]
        for gpu in gpu_map["gpus"]
        for cell in gpu["cells"]
        if cell["tenant"] is not None and cell["vm"] is not None
    }


def _fingerprint(host_key: str) -> str | None:
    """``SHA256:…`` as ssh-keygen prints it; None for what is no key."""
    try:
        blob = base64.b64decode(host_key.rsplit(maxsplit=1)[-1], validate=True)
    except (binascii.Error, IndexError):
        return None
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
