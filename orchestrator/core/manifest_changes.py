# SPDX-License-Identifier: Apache-2.0
"""What has to change so that the world is as a file (manifest.py) says.

Nothing here changes a VM's size or device in place: that would stop it. Such a difference is refused by
name and field, and the user decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Final

from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.labels import NOTHING_SAID, About, WantedAbout
from orchestrator.core.manifest import (
    OFF,
    PROTECTED,
    Action,
    Change,
    Existing,
    ExistingVm,
    FieldChange,
    Manifest,
    ManifestVm,
    WantedGroup,
    WantedImage,
    WantedOffering,
    WantedTenant,
    WantedVolume,
    listed,
)
from orchestrator.core.manifest_addresses import floating_changes, led_changes, peer_changes
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.tenancy.quota import show_amount
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.lease import show_moment, show_span
from orchestrator.core.vms.network import WantedNetwork, place_of
from orchestrator.core.vms.vm import LEFT_OPEN

_WITHIN_S: Final = 1.0
"""Moments are written to the second."""


def changes(wanted: Manifest, existing: Existing, *, prune: bool) -> tuple[Change, ...]:
    """In the order in which they must be done: what goes makes room, VMs need all the rest."""
    planned = [
        *_tenant_changes(wanted.tenants, existing.tenants),
        *_offering_changes(wanted.offerings, existing),
        *floating_changes(wanted.floating, existing.floating),
        *_network_changes(wanted.networks, existing.networks),
        *_group_changes(wanted.groups, existing.groups),
        *_image_changes(wanted.images, existing.images),
        *_volume_changes(wanted.volumes, existing.volumes),
    ]
    planned = [*_with_abouts(planned, wanted, existing), *peer_changes(wanted.networks, existing.networks)]
    if prune:
        planned = [*_pruned(wanted, existing), *planned]
    for vm in wanted.vms:
        seen = existing.vms.get(vm.key)
        planned += _of_vm(vm, seen)
    led = led_changes(wanted.floating, existing.floating)
    return (*planned, *_use_changes(wanted.groups, existing.groups), *led)


def _of_vm(wanted: ManifestVm, existing: ExistingVm | None) -> list[Change]:
    """Nothing is done to one of which a part is refused."""
    change = _vm_change(wanted, existing)
    if existing is None or (change is not None and change.action == "refuse"):
        return [] if change is None else [change]
    longer = _lease_change(wanted, existing)
    if longer is not None and longer.action == "refuse":
        return [longer]
    return [part for part in (longer, _label_change(wanted, existing), change) if part is not None]


def _label_change(wanted: ManifestVm, existing: ExistingVm) -> Change | None:
    differing = _about_fields(WantedAbout(labels=wanted.labels), About(labels=existing.vm.labels))
    if wanted.protected not in {None, existing.vm.protected}:
        protected = FieldChange(field=PROTECTED, there=_flag(existing.vm.protected), wanted=_flag(wanted.protected))
        differing = (*differing, protected)
    return Change(kind="vm", name=wanted.key, action="set", fields=differing) if differing else None


def _about_fields(wanted: WantedAbout, current: About) -> tuple[FieldChange, ...]:
    return tuple(FieldChange(field=name, there=is_, wanted=to_be) for name, is_, to_be in wanted.differing(current))


def _with_abouts(planned: Iterable[Change], wanted: Manifest, existing: Existing) -> list[Change]:
    """The same with what is said of the things. Nothing is done to one of which a part is refused."""
    changed = {(change.kind, change.name): change for change in planned}
    for key, about in wanted.abouts.items():
        change = changed.get(key)
        fields = _about_fields(about, existing.abouts.get(key, NOTHING_SAID))
        if change is None and fields:
            changed[key] = Change(kind=key[0], name=key[1], action="set", fields=fields)
        elif change is not None and change.action != "refuse":
            new = change.action == "add"
            fields = tuple(replace(field, there=None) for field in fields) if new else fields
            changed[key] = replace(change, fields=(*change.fields, *fields))
    return list(changed.values())


def lease_end(vm: ManifestVm, created_at: float) -> float | None:
    """The earliest end that the file agrees with, of a VM that was made then; None: any."""
    return vm.end.at if vm.end.after_s is None else created_at + vm.end.after_s


def _lease_change(wanted: ManifestVm, existing: ExistingVm) -> Change | None:
    """Leases only get longer, by hand too: a later end than the file's is no difference."""
    end = lease_end(wanted, existing.created_at)
    if end is None or (existing.lease_end is not None and end < existing.lease_end + _WITHIN_S):
        return None
    current = "never" if existing.lease_end is None else show_moment(existing.lease_end)
    differs = FieldChange(field="until", there=current, wanted=show_moment(end))
    action: Action = "refuse" if existing.lease_end is None else "extend"
    return Change(kind="vm", name=wanted.key, action=action, fields=(differs,))


def _tenant_changes(
    wanted: Iterable[WantedTenant], existing: Mapping[str, Mapping[str, int | None]]
) -> Iterator[Change]:
    for tenant in wanted:
        limits = existing.get(tenant.name, {})
        differing = tuple(
            FieldChange(field=resource, there=_limit(resource, limits.get(resource)), wanted=_limit(resource, amount))
            for resource, amount in tenant.quota
            if limits.get(resource) != amount
        )
        if tenant.name not in existing or differing:
            yield Change(
                kind="tenant", name=tenant.name, action="set" if tenant.name in existing else "add", fields=differing
            )


def _limit(resource: str, amount: int | None) -> str:
    return "none" if amount is None else show_amount(resource, amount)


def _offering_changes(wanted: Iterable[WantedOffering], existing: Existing) -> Iterator[Change]:
    """One that VMs have stays as it is: they were made under it."""
    used = {item.vm.profile for item in existing.vms.values()}
    for offering in wanted:
        known = existing.offerings.get(offering.name)
        before = {} if known is None else _said(known)
        after = _said(offering.offering)
        differing = tuple(
            FieldChange(
                field=name, there=before.get(name, None if known is None else "none"), wanted=after.get(name, "none")
            )
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        )
        if known is None or differing:
            action: Action = "add" if known is None else "refuse" if offering.name in used else "set"
            yield Change(kind="offering", name=offering.name, action=action, fields=differing)


def _said(offering: Offering) -> dict[str, str]:
    """What it says otherwise than an offering that says nothing, as text."""
    silent = Offering(name=offering.name, kind=offering.kind, origin=offering.origin)
    texts: dict[str, str] = {"kind": offering.kind}
    for field in fields(offering):
        value = getattr(offering, field.name)
        if value == getattr(silent, field.name):
            continue
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        elif field.name == "hosts":
            value = dict(value)
        if isinstance(value, Mapping):
            texts |= {f"{field.name}.{name}": str(part) for name, part in value.items() if part is not None}
        elif isinstance(value, bool):
            texts[field.name] = str(value).lower()
        else:
            texts[field.name] = ", ".join(value) if isinstance(value, tuple) else str(value)
    return texts


def _network_changes(wanted: Iterable[WantedNetwork], existing: Mapping[str, WantedNetwork]) -> Iterator[Change]:
    for network in wanted:
        current = existing.get(network.key)
        before = {} if current is None else place_of(current)
        after = place_of(network)
        if current is not None and (current.overlay is None) != (network.overlay is None):
            kind = FieldChange(field="kind", there=current.kind, wanted=network.kind)
            yield Change(kind="network", name=network.key, action="refuse", fields=(kind,))
            continue
        if current is not None and network.overlay is not None:
            before = {name: value for name, value in before.items() if name in after}
        if current is not None and {current.kind, network.kind} == {"nat"} and network.subnet is None:
            continue
        differing = tuple(
            FieldChange(
                field=name, there=before.get(name, None if current is None else "none"), wanted=after.get(name, "none")
            )
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        )
        if differing:
            yield Change(kind="network", name=network.key, action=_network_action(current, network), fields=differing)


def _network_action(current: WantedNetwork | None, wanted: WantedNetwork) -> Action:
    """One of kind ovn gets more subnets, and loses none; what leads out of it stays."""
    if current is None:
        return "add"
    if current.overlay is None or wanted.overlay is None or wanted.out not in {None, current.out}:
        return "refuse"
    return "set" if set(current.overlay.subnets) <= set(wanted.overlay.subnets) else "refuse"


def _group_changes(wanted: Iterable[WantedGroup], existing: Mapping[str, WantedGroup]) -> Iterator[Change]:
    """What they let through: before the VMs that they are for."""
    for group in wanted:
        current = existing.get(group.key)
        before = None if current is None else listed(current.rules)
        fields = () if group.rules is None else (FieldChange(field="rules", there=before, wanted=listed(group.rules)),)
        if current is None or any(change.there != change.wanted for change in fields):
            action: Action = "add" if current is None else "set"
            yield Change(kind="security_group", name=group.key, action=action, fields=fields)


def _use_changes(wanted: Iterable[WantedGroup], existing: Mapping[str, WantedGroup]) -> Iterator[Change]:
    """What they are on: after the VMs of the same file."""
    for group in wanted:
        current = existing.get(group.key)
        before, after = listed(None if current is None else current.uses), listed(group.uses)
        if group.uses is not None and before != after:
            change = FieldChange(field="uses", there=before, wanted=after)
            yield Change(kind="security_group", name=group.key, action="set", fields=(change,))


def _image_changes(wanted: Iterable[WantedImage], existing: Mapping[str, str]) -> Iterator[Change]:
    for image in wanted:
        digest = existing.get(image.name)
        if digest is None:
            change = FieldChange(field="source", there=None, wanted=image.source)
            yield Change(kind="image", name=image.name, action="add", fields=(change,))
        elif image.sha256 not in {None, digest}:
            change = FieldChange(field="sha256", there=digest, wanted=image.sha256)
            yield Change(kind="image", name=image.name, action="refuse", fields=(change,))


def _volume_changes(wanted: Iterable[WantedVolume], existing: Mapping[str, WantedVolume]) -> Iterator[Change]:
    for volume in wanted:
        had, to_be = existing.get(volume.key), _of_volume(volume)
        is_so = dict.fromkeys(to_be) if had is None else _of_volume(had)
        fields = tuple(
            FieldChange(field=name, there=is_so[name], wanted=value)
            for name, value in to_be.items()
            if value != is_so[name] and not (name == "pool" and _is_in(value, had))
        )
        if fields:
            yield Change(kind="volume", name=volume.key, action="add" if had is None else "refuse", fields=fields)


def _of_volume(volume: WantedVolume) -> dict[str, str | None]:
    encrypted = "true" if volume.encrypted else None
    return {"size": show_size(volume.size_bytes), "pool": volume.pool, "encrypted": encrypted}


def _is_in(pool: object, existing: WantedVolume | ManifestVm | None) -> bool:
    """What says no pool is left to its profile or tenant."""
    return pool is None or (existing is not None and pool == (existing.pool or NO_POOL))


def _pruned(wanted: Manifest, existing: Existing) -> Iterator[Change]:
    """VMs that this label made and that the file no longer has."""
    named = {vm.key for vm in wanted.vms}
    for key, item in sorted(existing.vms.items()):
        if wanted.label is not None and item.label == wanted.label and key not in named and item.state != "deleting":
            gone = FieldChange(field="label", there=item.label, wanted=None)
            kept = FieldChange(field=PROTECTED, there="true", wanted="false")
            action: Action = "refuse" if item.vm.protected else "delete"
            yield Change(kind="vm", name=key, action=action, fields=(kept,) if item.vm.protected else (gone,))


def is_protected(change: Change) -> bool:
    """Whether it is a deletion that is refused for that."""
    return change.action == "refuse" and [field.field for field in change.fields] == [PROTECTED]


def _flag(value: bool | None) -> str:
    return "true" if value else "false"


def _vm_change(wanted: ManifestVm, existing: ExistingVm | None) -> Change | None:
    if existing is None:
        return Change(kind="vm", name=wanted.key, action="add", fields=tuple(_all_fields(wanted)))
    differing = tuple(_differences(wanted, existing))
    if differing or existing.state in {"deleting", "failed", "stuck"}:
        state = FieldChange(field="state", there=existing.state, wanted=_state(wanted))
        return Change(kind="vm", name=wanted.key, action="refuse", fields=differing or (state,))
    off = existing.state in OFF
    if off != wanted.running:
        return None
    state = FieldChange(field="state", there=existing.state, wanted=_state(wanted))
    return Change(kind="vm", name=wanted.key, action="start" if off else "stop", fields=(state,))


def _state(vm: ManifestVm) -> str:
    return "running" if vm.running else "stopped"


_SOURCES: Final = ("from_snapshot", "from_backup")
"""What its disk was made of."""
_IDENTITY: Final = {
    "name", "tenant", "running", "end", "user_data", "labels", "protected", "addresses", *_SOURCES,
}  # fmt: skip
_COMPARED: Final = tuple(one.name for one in fields(ManifestVm) if one.name not in _IDENTITY)
"""Every member that makes a VM what it is."""
_PLACE: Final = frozenset({"host", "gpu"})
"""Where it shall be made. The host is compared with the one that it is on."""
_IN_FILE: Final = {"memory_mib": "memory", "disk_bytes": "disk", "has_user_data": "user_data"}
"""What a file calls what has another unit here."""


def _all_fields(vm: ManifestVm) -> Iterator[FieldChange]:
    for name in _COMPARED:
        value = getattr(vm, name)
        if value or (value is False and name in LEFT_OPEN):
            yield FieldChange(field=_in_file(name), there=None, wanted=_words(name, value))
    for key, value in vm.labels:
        yield FieldChange(field=f"labels.{key}", there=None, wanted=value)
    for network, address in vm.addresses:
        yield FieldChange(field=f"addresses.{network}", there=None, wanted=address)
    for source in _SOURCES:
        if (of := getattr(vm, source)) is not None:
            yield FieldChange(field=source, there=None, wanted=of)
    if vm.end.after_s is not None:
        yield FieldChange(field="lease", there=None, wanted=show_span(vm.end.after_s))
    if vm.end.at is not None:
        yield FieldChange(field="until", there=None, wanted=show_moment(vm.end.at))
    if vm.protected:
        yield FieldChange(field=PROTECTED, there=None, wanted="true")
    yield FieldChange(field="state", there=None, wanted=_state(vm))


def _differences(wanted: ManifestVm, existing: ExistingVm) -> Iterator[FieldChange]:
    for name in _COMPARED:
        current, value = getattr(existing.vm, name), getattr(wanted, name)
        if name in LEFT_OPEN and value == LEFT_OPEN[name]:
            continue  # left to the profile, which may say otherwise now than when the VM was made
        if name == "pool" and _is_in(value, existing.vm):
            continue
        if name not in _PLACE and value != current:
            yield FieldChange(field=_in_file(name), there=_words(name, current), wanted=_words(name, value))
    has = dict(existing.vm.addresses)
    for network, address in wanted.addresses:
        if not set(address.split(",")) <= set(has.get(network, "").split(",")):
            yield FieldChange(field=f"addresses.{network}", there=has.get(network, "none"), wanted=address)
    if wanted.from_snapshot not in {None, existing.vm.from_snapshot}:
        had = existing.vm.from_snapshot or "none"
        yield FieldChange(field="from_snapshot", there=had, wanted=wanted.from_snapshot)
    if not (existing.vm.from_backup or "").startswith(wanted.from_backup or ""):
        yield FieldChange(field="from_backup", there=existing.vm.from_backup or "none", wanted=wanted.from_backup)
    if existing.on_host is not None and wanted.host not in {None, existing.on_host}:
        yield FieldChange(field="host", there=existing.on_host, wanted=wanted.host)


def _in_file(member: str) -> str:
    return _IN_FILE.get(member, member)


def _words(member: str, value: object) -> str:
    """As a file says it; user data is only said to be there."""
    if member == "has_user_data":
        return "given" if value else "none"
    if isinstance(value, bool):
        return _flag(value)
    if isinstance(value, int) and member in {"memory_mib", "disk_bytes"}:
        return show_size(value * MIB if member == "memory_mib" else value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return "" if value is None else str(value)
