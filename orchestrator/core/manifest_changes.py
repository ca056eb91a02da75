# SPDX-License-Identifier: Apache-2.0
"""What has to change so that the world is as a file (manifest.py) says.

Nothing here changes a VM's size or device in place: that would stop it. Such a difference is refused by
name and field, and the user decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Final

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
    WantedImage,
    WantedOffering,
    WantedTenant,
    WantedVolume,
)
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.tenancy.quota import show_amount
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.lease import show_moment, show_span
from orchestrator.core.vms.network import WantedNetwork, place_of
from orchestrator.core.vms.vm import LEFT_OPEN

_WITHIN_S: Final = 1.0
"""Moments are written to the second."""


def changes(wanted: Manifest, there: Existing, *, prune: bool) -> tuple[Change, ...]:
    """In the order in which they must be done: what goes makes room, VMs need all the rest."""
    found = [
        *_tenant_changes(wanted.tenants, there.tenants),
        *_offering_changes(wanted.offerings, there),
        *_network_changes(wanted.networks, there.networks),
        *_image_changes(wanted.images, there.images),
        *_volume_changes(wanted.volumes, there.volumes),
    ]
    found = _with_abouts(found, wanted, there)
    if prune:
        found = [*_pruned(wanted, there), *found]
    for vm in wanted.vms:
        seen = there.vms.get(vm.key)
        found += _of_vm(vm, seen)
    return tuple(found)


def _of_vm(wanted: ManifestVm, found: ExistingVm | None) -> list[Change]:
    """Nothing is done to one of which a part is refused."""
    change = _vm_change(wanted, found)
    if found is None or (change is not None and change.action == "refuse"):
        return [] if change is None else [change]
    longer = _lease_change(wanted, found)
    if longer is not None and longer.action == "refuse":
        return [longer]
    return [one for one in (longer, _label_change(wanted, found), change) if one is not None]


def _label_change(wanted: ManifestVm, found: ExistingVm) -> Change | None:
    differing = _about_fields(WantedAbout(labels=wanted.labels), About(labels=found.vm.labels))
    if wanted.protected not in {None, found.vm.protected}:
        protected = FieldChange(field=PROTECTED, there=_flag(found.vm.protected), wanted=_flag(wanted.protected))
        differing = (*differing, protected)
    return Change(kind="vm", name=wanted.key, action="set", fields=differing) if differing else None


def _about_fields(wanted: WantedAbout, there: About) -> tuple[FieldChange, ...]:
    return tuple(FieldChange(field=name, there=is_, wanted=to_be) for name, is_, to_be in wanted.differing(there))


def _with_abouts(found: Iterable[Change], wanted: Manifest, there: Existing) -> list[Change]:
    """The same with what is said of the things. Nothing is done to one of which a part is refused."""
    changed = {(change.kind, change.name): change for change in found}
    for key, about in wanted.abouts.items():
        change = changed.get(key)
        fields = _about_fields(about, there.abouts.get(key, NOTHING_SAID))
        if change is None and fields:
            changed[key] = Change(kind=key[0], name=key[1], action="set", fields=fields)
        elif change is not None and change.action != "refuse":
            new = change.action == "add"
            fields = tuple(replace(one, there=None) for one in fields) if new else fields
            changed[key] = replace(change, fields=(*change.fields, *fields))
    return list(changed.values())


def lease_end(vm: ManifestVm, created_at: float) -> float | None:
    """The earliest end that the file agrees with, of a VM that was made then; None: any."""
    return vm.end.at if vm.end.after_s is None else created_at + vm.end.after_s


def _lease_change(wanted: ManifestVm, found: ExistingVm) -> Change | None:
    """Leases only get longer, by hand too: a later end than the file's is no difference."""
    end = lease_end(wanted, found.created_at)
    if end is None or (found.lease_end is not None and end < found.lease_end + _WITHIN_S):
        return None
    there = "never" if found.lease_end is None else show_moment(found.lease_end)
    differs = FieldChange(field="until", there=there, wanted=show_moment(end))
    action: Action = "refuse" if found.lease_end is None else "extend"
    return Change(kind="vm", name=wanted.key, action=action, fields=(differs,))


def _tenant_changes(wanted: Iterable[WantedTenant], there: Mapping[str, Mapping[str, int | None]]) -> Iterator[Change]:
    for tenant in wanted:
        limits = there.get(tenant.name, {})
        differing = tuple(
            FieldChange(field=resource, there=_limit(resource, limits.get(resource)), wanted=_limit(resource, amount))
            for resource, amount in tenant.quota
            if limits.get(resource) != amount
        )
        if tenant.name not in there or differing:
            yield Change(
                kind="tenant", name=tenant.name, action="set" if tenant.name in there else "add", fields=differing
            )


def _limit(resource: str, amount: int | None) -> str:
    return "none" if amount is None else show_amount(resource, amount)


def _offering_changes(wanted: Iterable[WantedOffering], there: Existing) -> Iterator[Change]:
    """One that VMs have stays as it is: they were made under it."""
    used = {found.vm.profile for found in there.vms.values()}
    for one in wanted:
        known = there.offerings.get(one.name)
        before = {} if known is None else _said(known)
        after = _said(one.offering)
        differing = tuple(
            FieldChange(
                field=name, there=before.get(name, None if known is None else "none"), wanted=after.get(name, "none")
            )
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        )
        if known is None or differing:
            action: Action = "add" if known is None else "refuse" if one.name in used else "set"
            yield Change(kind="offering", name=one.name, action=action, fields=differing)


def _said(offering: Offering) -> dict[str, str]:
    """What it says otherwise than an offering that says nothing, as text."""
    silent = Offering(name=offering.name, kind=offering.kind, origin=offering.origin)
    found: dict[str, str] = {"kind": offering.kind}
    for one in fields(offering):
        value = getattr(offering, one.name)
        if value == getattr(silent, one.name):
            continue
        if is_dataclass(value) and not isinstance(value, type):
            value = asdict(value)
        elif one.name == "hosts":
            value = dict(value)
        if isinstance(value, Mapping):
            found |= {f"{one.name}.{name}": str(part) for name, part in value.items() if part is not None}
        elif isinstance(value, bool):
            found[one.name] = str(value).lower()
        else:
            found[one.name] = ", ".join(value) if isinstance(value, tuple) else str(value)
    return found


def _network_changes(wanted: Iterable[WantedNetwork], there: Mapping[str, WantedNetwork]) -> Iterator[Change]:
    for network in wanted:
        found = there.get(network.key)
        before = {} if found is None else place_of(found)
        after = place_of(network)
        if found is not None and found.uplink is None and network.uplink is None and network.subnet is None:
            continue
        differing = tuple(
            FieldChange(
                field=name, there=before.get(name, None if found is None else "none"), wanted=after.get(name, "none")
            )
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        )
        if differing:
            action: Action = "add" if found is None else "refuse"
            yield Change(kind="network", name=network.key, action=action, fields=differing)


def _image_changes(wanted: Iterable[WantedImage], there: Mapping[str, str]) -> Iterator[Change]:
    for image in wanted:
        digest = there.get(image.name)
        if digest is None:
            change = FieldChange(field="source", there=None, wanted=image.source)
            yield Change(kind="image", name=image.name, action="add", fields=(change,))
        elif image.sha256 not in {None, digest}:
            change = FieldChange(field="sha256", there=digest, wanted=image.sha256)
            yield Change(kind="image", name=image.name, action="refuse", fields=(change,))


def _volume_changes(wanted: Iterable[WantedVolume], there: Mapping[str, int]) -> Iterator[Change]:
    for volume in wanted:
        size = there.get(volume.key)
        if size != volume.size_bytes:
            shown = None if size is None else show_size(size)
            change = FieldChange(field="size", there=shown, wanted=show_size(volume.size_bytes))
            yield Change(kind="volume", name=volume.key, action="add" if size is None else "refuse", fields=(change,))


def _pruned(wanted: Manifest, there: Existing) -> Iterator[Change]:
    """VMs that this label made and that the file no longer has."""
    named = {vm.key for vm in wanted.vms}
    for key, found in sorted(there.vms.items()):
        if wanted.label is not None and found.label == wanted.label and key not in named and found.state != "deleting":
            gone = FieldChange(field="label", there=found.label, wanted=None)
            kept = FieldChange(field=PROTECTED, there="true", wanted="false")
            action: Action = "refuse" if found.vm.protected else "delete"
            yield Change(kind="vm", name=key, action=action, fields=(kept,) if found.vm.protected else (gone,))


def is_protected(change: Change) -> bool:
    """Whether it is a deletion that is refused for that."""
    return change.action == "refuse" and [one.field for one in change.fields] == [PROTECTED]


def _flag(value: bool | None) -> str:
    return "true" if value else "false"


def _vm_change(wanted: ManifestVm, found: ExistingVm | None) -> Change | None:
    if found is None:
        return Change(kind="vm", name=wanted.key, action="add", fields=tuple(_all_fields(wanted)))
    differing = tuple(_differences(wanted, found))
    if differing or found.state in {"deleting", "failed", "stuck"}:
        state = FieldChange(field="state", there=found.state, wanted=_state(wanted))
        return Change(kind="vm", name=wanted.key, action="refuse", fields=differing or (state,))
    off = found.state in OFF
    if off != wanted.running:
        return None
    state = FieldChange(field="state", there=found.state, wanted=_state(wanted))
    return Change(kind="vm", name=wanted.key, action="start" if off else "stop", fields=(state,))


def _state(vm: ManifestVm) -> str:
    return "running" if vm.running else "stopped"


_IDENTITY: Final = {"name", "tenant", "running", "end", "user_data", "labels", "protected"}
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
    if vm.end.after_s is not None:
        yield FieldChange(field="lease", there=None, wanted=show_span(vm.end.after_s))
    if vm.end.at is not None:
        yield FieldChange(field="until", there=None, wanted=show_moment(vm.end.at))
    if vm.protected:
        yield FieldChange(field=PROTECTED, there=None, wanted="true")
    yield FieldChange(field="state", there=None, wanted=_state(vm))


def _differences(wanted: ManifestVm, found: ExistingVm) -> Iterator[FieldChange]:
    for name in _COMPARED:
        there, value = getattr(found.vm, name), getattr(wanted, name)
        if name in LEFT_OPEN and value == LEFT_OPEN[name]:
            continue  # left to the profile, which may say otherwise now than when the VM was made
        if name not in _PLACE and value != there:
            yield FieldChange(field=_in_file(name), there=_words(name, there), wanted=_words(name, value))
    if found.on_host is not None and wanted.host not in {None, found.on_host}:
        yield FieldChange(field="host", there=found.on_host, wanted=wanted.host)


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
