# SPDX-License-Identifier: Apache-2.0
"""Which VMs of a file the server would not create, asked of it before anything is made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from orchestrator.cli.manifest.carry_out import request_for
from orchestrator.client.client import Client
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded
from orchestrator.core.manifest import Change, Manifest, ManifestVm
from orchestrator.core.vms.volume import READ_ONLY, plain_name


def with_refusals(client: Client, wanted: Manifest, planned: Sequence[Change]) -> tuple[Change, ...]:
    """The same, where a VM that is to be added would be refused by itself: that, with the reason. Nothing is known of
    one for which the file makes something first, nor of any while others go or stop: that makes room."""
    making = {(change.kind, change.name) for change in planned if change.action in {"add", "set"}}
    freeing = any(change.action in {"delete", "stop"} for change in planned)
    vms = {vm.key: vm for vm in wanted.vms}

    def judged(change: Change) -> Change:
        if (change.kind, change.action) != ("vm", "add"):
            return change
        vm = vms[change.name]
        reason = _empty(vm, making)
        if reason is None and not freeing and making.isdisjoint(_needed(vm)):
            reason = _refusal(client, vm, wanted.label)
        return change if reason is None else replace(change, action="refuse", reason=reason)

    return tuple(map(judged, planned))


def _empty(vm: ManifestVm, making: Collection[tuple[str, str]]) -> str | None:
    """Of a volume that the file makes, there is nothing to read."""
    names = [plain_name(name) for name in vm.volumes if name.endswith(READ_ONLY)]
    new = next((name for name in names if ("volume", f"{vm.tenant}/{name}") in making), None)
    return None if new is None else f"no VM has had volume {new}: nothing is on it [volume.empty]"


def _needed(vm: ManifestVm) -> Iterator[tuple[str, str]]:
    """Kinds and names of what it may be made of."""
    yield from (("tenant", vm.tenant), ("offering", vm.profile), ("image", vm.image))
    owned = (("image", vm.image), *(("network", name) for name in vm.networks))
    for kind, name in (*owned, *(("volume", plain_name(name)) for name in vm.volumes)):
        yield kind, name
        yield kind, f"{vm.tenant}/{name}"
    if vm.from_snapshot is not None:
        yield "vm", f"{vm.tenant}/{vm.from_snapshot.partition('/')[0]}"


def _refusal(client: Client, vm: ManifestVm, label: str | None) -> str | None:
    try:
        client.plan_vm(request_for(vm, label))
    except (InvalidInput, NotFound, Conflict, NoCapacity, QuotaExceeded) as error:
        return f"{error.message} [{error.code}]"
    return None
