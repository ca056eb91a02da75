# SPDX-License-Identifier: Apache-2.0
"""What exists as a file for ``apply``: planning it on the same server finds nothing to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from orchestrator.cli.manifest.observed import about_of, observe, offering_of
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import Denied, NotFound
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.manifest import BUSY, OFF, ExistingVm, Manifest, ManifestVm, WantedGroup, WantedVolume
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.security_groups import DEFAULT_GROUP, default_group
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import show_amount
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.lease import show_moment
from orchestrator.core.vms.network import WantedNetwork


def exported(client: Client, tenant: str | None) -> dict[str, Any]:
    """``tenant``: only what is its own; None: everything that the caller may see.

    Images are named by VMs and left out, as nobody keeps where they came from. So are user data, which is never shown,
    and what was adopted.

    :raises NotFound: ``tenant.unknown``"""
    if tenant is not None:
        client.tenant(tenant)
    existing = observe(client, Manifest(label=None))
    vms = [vm for vm in existing.vms.values() if tenant in {None, vm.vm.tenant} and vm.vm.image]
    tenants = sorted(client.tenants(), key=lambda one: str(one["name"]))
    entries = [entry for row in tenants if tenant in {None, row["name"]} for entry in _tenant(client, row)]
    offerings = [offering_of(offering) for offering in client.offerings()]
    offered = {offering.name for offering in offerings if offering.pool is not None}

    bare = {vm.vm.tenant for vm in vms if vm.vm.pool is None}
    bare |= {volume.tenant for volume in existing.volumes.values() if volume.pool is None}
    usual = {owner for owner in bare if tenant in {None, owner} and _has_pool(client, owner)}
    manifest = {
        "schema_version": 1,
        "tenants": [entry for entry in entries if entry != {"name": DEFAULT_TENANT}],
        "offerings": [] if tenant else [_offering(offering) for offering in offerings],
        "networks": [
            _network(network) | _said(existing.abouts["network", key])
            for key, network in existing.networks.items()
            if tenant in {None, network.tenant} and not network.leads_out
        ],
        "floating_addresses": [
            {name: value for name, value in asdict(floating).items() if value is not None}
            for floating in existing.floating.values()
            if tenant in {None, floating.tenant}
        ],
        "security_groups": [
            _group(group) | _said(existing.abouts["security_group", key])
            for key, group in existing.groups.items()
            if tenant in {None, group.tenant} and not _is_untouched(group, existing.abouts["security_group", key])
        ],
        "volumes": [
            _volume(volume, volume.tenant in usual) | _said(existing.abouts["volume", key])
            for key, volume in existing.volumes.items()
            if tenant in {None, volume.tenant}
        ],
        "vms": [_vm(vm, vm.vm.profile in offered or vm.vm.tenant in usual) for vm in _settled(vms)],
    }
    return {key: value for key, value in manifest.items() if value}


def left_out(client: Client, tenant: str | None) -> Iterator[str]:
    """What exists and no file says, with how it is made again."""
    known = client.networks() if tenant is None else []
    names = ", ".join(network["name"] for network in known if network["kind"] == "provider")
    if names:
        yield f"not in the file: provider networks, 'vgpuctl network add NAME --provider MAPPING': {names}"


def _tenant(client: Client, tenant: Json) -> Iterator[dict[str, Any]]:
    """None where it is deleted meanwhile."""
    name = str(tenant["name"])
    try:
        limits = client.quota(name) if name != EVERYWHERE else []
    except Denied:
        limits = []
    except NotFound:
        return
    quota = {
        limit["resource"]: show_amount(limit["resource"], limit["limit"])
        for limit in limits
        if limit["limit"] is not None
    }
    yield {"name": name} | ({"quota": quota} if quota else {}) | _said(about_of(tenant))


def _has_pool(client: Client, tenant: str) -> bool:
    try:
        return client.policy(tenant)["pool"] is not None
    except (Denied, NotFound):  # deleted meanwhile
        return False


def _said(about: About) -> dict[str, Any]:
    members = {"description": about.description, "labels": dict(about.labels)}
    return {key: value for key, value in members.items() if value}


def _network(network: WantedNetwork) -> dict[str, Any]:
    place: dict[str, Any] = {"subnet": network.subnet, "dhcp_servers": list(network.dhcp_servers)}
    if network.uplink is not None:
        place |= {"bridge": network.uplink.bridge, "vlan": network.uplink.vlan}
    if network.overlay is not None:
        overlay = network.overlay
        place = {
            "kind": "ovn",
            "out": network.out,
            "subnet": overlay.subnets[0],
            "more_subnets": list(overlay.subnets[1:]),
        }
        place |= {"mtu": overlay.mtu, "dns_servers": list(overlay.dns or ())}
        place |= {"peers": [key.removeprefix(f"{network.tenant}/") for key in network.peers]}
        place |= {"search_domains": list(overlay.search or ()), "dhcp_options": dict(overlay.dhcp or ())}
        place |= {"flow_log": None if overlay.flow_log == "off" else overlay.flow_log}
    entry = {"name": network.name, "tenant": network.tenant} | place
    return {key: value for key, value in entry.items() if value not in (None, [], {})}


def _is_untouched(group: WantedGroup, about: About) -> bool:
    """A tenant's default group that nobody has changed."""
    untouched = (default_group(group.tenant).rules, (), NOTHING_SAID)
    return group.name == DEFAULT_GROUP and (group.rules, group.uses, about) == untouched


def _group(group: WantedGroup) -> dict[str, Any]:
    uses = [{name: value for name, value in asdict(use).items() if value is not None} for use in group.uses or ()]
    entry = {"name": group.name, "tenant": group.tenant, "rules": [str(rule) for rule in group.rules or ()]}
    return entry | ({"uses": uses} if uses else {})


def _volume(volume: WantedVolume, says_none: bool) -> dict[str, Any]:
    pool = volume.pool or (NO_POOL if says_none else None)
    in_pool = {} if pool is None else {"pool": pool}
    more = in_pool | ({"encrypted": True} if volume.encrypted else {})
    return {"name": volume.name, "tenant": volume.tenant, "size": show_size(volume.size_bytes), **more}


def _offering(offering: Offering) -> dict[str, Any]:
    """Only what it says otherwise than one that says nothing."""
    silent = asdict(Offering(name=offering.name, kind=offering.kind))
    fields = {key: value for key, value in asdict(offering).items() if value != silent[key] and key != "origin"}
    if offering.hosts:
        fields["hosts"] = dict(offering.hosts)
    entry = {"name": offering.name, "kind": offering.kind, **fields}
    return {key: list(value) if isinstance(value, tuple) else _without_none(value) for key, value in entry.items()}


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        return {key: member for key, member in value.items() if member is not None}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _settled(vms: Iterable[ExistingVm]) -> Iterable[ExistingVm]:
    return (vm for vm in vms if vm.state in {"running", "stopped"} | BUSY and vm.state != "deleting")


def _vm(existing: ExistingVm, says_none: bool) -> dict[str, Any]:
    """``says_none``: a new one that names no pool would lie in one."""
    vm = existing.vm
    members: dict[str, Any] = {
        **dict(_shape(vm)),
        "pool": vm.pool or (NO_POOL if says_none else None),
        "addresses": dict(vm.addresses),
        "labels": dict(vm.labels),
        "protected": vm.protected or None,
        "state": "stopped" if existing.state in OFF else "running",
    }
    if existing.lease_end is not None:
        members["until"] = show_moment(existing.lease_end)
    return {key: value for key, value in members.items() if value not in ([], {}, None)}


def _shape(vm: ManifestVm) -> Iterator[tuple[str, Any]]:
    """Where it was wanted to be is left out: it stays where it is."""
    for name, value in vm.shape().items():
        match name:
            case "host" | "gpu":
                continue
            case "memory_mib":
                yield "memory", show_size(value * MIB)
            case "disk_bytes":
                yield "disk", show_size(value)
            case _:
                yield name, list(value) if isinstance(value, tuple) else value
