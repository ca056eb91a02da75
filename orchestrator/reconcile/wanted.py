# SPDX-License-Identifier: Apache-2.0
"""What the database wants of a host, as core/diff takes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.reconcile import Disagreement, Kind, reconcile_types
from orchestrator.core.attachments import observed_on
from orchestrator.core.diff import ExpectedHost, ExpectedVm, Finding, Severity, host_finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.maintenance.maintenance import ENDED, UNDER_WAY, held_vms
from orchestrator.core.operation import Operation
from orchestrator.core.vms.lease import show_moment
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.restored import is_restored
from orchestrator.store.transaction import Transaction

LICENCE_WITHIN_S: Final = 600.0
"""So long a guest has to fetch its licence once it was given its token."""


def wanted_of(tx: Transaction, host: Host, snapshot: HostSnapshot, turn: int, now: float) -> ExpectedHost:
    """``turn``: the newest when the observation of the host began; ``now``: seconds since the epoch."""
    without = {item.vm for gpu in snapshot.gpus for item in gpu.licences if item.state == "unlicensed"}
    vms, busy, gone = [], set[str](), set[str]()
    there, held = tx.vms.list(host=host.name), held_vms(tx.maintenances.active(), host.name)
    for vm in there:
        operation = None if vm.operation is None else tx.operations.get(vm.operation).operation
        settled = operation is not None and vm.state in {"running", "stopped"} and _over(operation, turn)
        if not settled or vm.id in held:
            busy.add(vm.id)
            continue
        claimed = vm.deallocated is not None or tx.claims.find(vm.id) is not None
        unlicensed = _how_bad(tx, vm.id, now) if vm.id in without else None
        vms.append(ExpectedVm(vm=vm, claimed=claimed, unlicensed=unlicensed))
    at_work = {item.id for item in tx.operations.of_subject(host.name) if not _over(item, turn)}
    if at_work:
        busy |= {KEEPER, *at_work}  # a layout may be on its way, or a GPU be tried
    for owner in set(_owners(snapshot)) - busy - {item.vm.id for item in vms}:
        operations = tx.operations.of_subject(owner)
        if not all(_over(item, turn) for item in operations) or tx.vms.find_id(owner) is not None:
            busy.add(owner)
        elif any(_removed(item) for item in operations):
            gone.add(owner)
    volumes = tx.volumes.list(host=host.name)
    at_rest = tuple(
        item for item in volumes if item.state == "ready" and item.vm not in busy and _is_settled(tx, item.id, turn)
    )
    busy |= {item.id for item in volumes} - {item.id for item in at_rest}
    busy |= {item.owner for item in snapshot.data if item.owner is not None and not _is_settled(tx, item.owner, turn)}
    known = busy | {item.id for item in volumes}
    busy |= {owner for owner in {item.owner for item in snapshot.data} - known if owner and _is_copied(tx, owner, turn)}
    return ExpectedHost(
        host=host, vms=tuple(vms), busy=frozenset(busy), gone=frozenset(gone), placed=there, volumes=at_rest,
        networks=tuple(item for item in tx.networks.list() if any(item.name in vm.spec.networks for vm in there)),
        images=frozenset(image.file for image in tx.images.list()),
    )  # fmt: skip


def _how_bad(tx: Transaction, vm: str, now: float) -> Severity | None:
    """That it has no licence. A host that something is said of is compared at each look, so that time is noticed."""
    given = [
        result for result in tx.guests.get(vm).results if result.role == "guest_licence" and result.state != "failed"
    ]
    if not given:
        return None
    return "warning" if any(result.at + LICENCE_WITHIN_S < now for result in given) else "info"


def _is_settled(tx: Transaction, subject: str, turn: int) -> bool:
    return all(_over(operation, turn) for operation in tx.operations.of_subject(subject))


def _is_copied(tx: Transaction, volume: str, turn: int) -> bool:
    """It is what an operation about another volume makes, which has no row any more when that is done."""
    return any(not _over(tx.operations.get(its).operation, turn) for its in tx.volumes.makers(volume))


def _over(operation: Operation, turn: int) -> bool:
    """Nothing of it can still change what that look saw, and no operator is at work on it."""
    return operation.state != "stuck" and operation.over_by(turn)


def _removed(operation: Operation) -> bool:
    """It has ended so that nothing of its VM is wanted. Of one that a backup had as unfinished nobody knows: its VM may
    have been used for long since."""
    definition = DEFINITIONS.get(operation.kind)
    return definition is not None and not is_restored(operation) and definition.removed(operation.state)


def _owners(snapshot: HostSnapshot) -> Iterator[str]:
    owners = [item.owner for item in snapshot.domains]
    owners += [item.owner for item in (*snapshot.volumes, *snapshot.seeds)]
    owners += [item.owner for nic in snapshot.nics for item in nic.functions]
    owners += [item.owner for gpu in snapshot.gpus for item in observed_on(gpu)]
    owners += [item.owner for item in (snapshot.fabric.partitions if snapshot.fabric is not None else ())]
    return (owner for owner in owners if owner is not None)


_TOLD: frozenset[Kind] = frozenset({"type_of_other_model", "framebuffer", "max_instances", "memory"})
"""What changes how much fits. Ids differ between releases of the driver, and each release has types of its own."""
_SHOWN = 3
_SERVES = "a host that gets new VMs"


def fact_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU of ours that differs."""
    for gpu in snapshot.gpus:
        if gpu.address not in host.managed_gpus or gpu.driver != "nvidia":
            continue
        differing = _differences(replace(gpu, address="", uuid="", serial=None, numa_node=None, parents=(), problems=(),
                                     instances=()))  # fmt: skip
        if differing:
            yield _gpu_finding(host, gpu, differing)


@lru_cache(maxsize=32)
def _differences(like: GpuSnapshot) -> tuple[Disagreement, ...]:
    """Of all GPUs that are alike."""
    return tuple(
        disagreement for disagreement in reconcile_types(shipped(), like).disagreements if disagreement.kind in _TOLD
    )


def _gpu_finding(host: Host, gpu: GpuSnapshot, disagreements: tuple[Disagreement, ...]) -> Finding:
    more = f" and {len(disagreements) - _SHOWN} more" if len(disagreements) > _SHOWN else ""
    shown = disagreements[:_SHOWN]

    def told(side: str) -> str:
        return (
            "; ".join(f"{disagreement.subject or 'the GPU'}: {getattr(disagreement, side)}" for disagreement in shown)
            + more
        )

    why = "the host's driver is believed; is vgpuctl older than the driver? then an upgrade may know it"
    differ = (told("catalogue"), told("host"))
    return host_finding(host, "gpu.facts_differ", "info", differ, why, f"GPU {gpu.address}")


def cordon_findings(tx: Transaction, host: Host) -> Iterator[Finding]:
    """One, unless maintenance is just at work there."""
    if not host.cordoned or host.state == "forgotten":
        return
    its, turn = tx.maintenances.last_on(host.name) or (None, None)
    if its is None or turn is None or turn.phase not in {*UNDER_WAY, "failed", "rolled_back"}:
        mend = f"'vgpuctl host uncordon {host.name}' when it shall get new VMs again"
        yield host_finding(host, "host.cordoned", "info", (_SERVES, _cordoned(host)), mend)
    elif turn.phase not in UNDER_WAY:
        ended = "" if turn.ended_at is None else f" at {show_moment(turn.ended_at)}"
        what = f"{its.title} ended as {turn.phase}{ended}: {turn.why}; {_cordoned(host)}"
        mend = f"mend it and do it again, or 'vgpuctl host uncordon {host.name}' when it shall serve as it is"
        yield host_finding(host, "host.maintenance_failed", "warning", (_SERVES, what), mend)


def overran_findings(tx: Transaction, host: Host) -> Iterator[Finding]:
    """One for each maintenance that was to be over by now and is not, on this host."""
    for its in tx.maintenances.active():
        turn = next((turn for turn in its.hosts if turn.host == host.name and turn.phase not in ENDED), None)
        if its.overran and its.ends_by is not None and turn is not None:
            differ = (f"{its.title} over by {show_moment(its.ends_by)}", f"the host is {turn.phase}")
            why = f"'vgpuctl maintenance show {its.id}' tells how far it is; tenants were told that end"
            yield host_finding(host, "maintenance.overran", "warning", differ, why)


def _cordoned(host: Host) -> str:
    """Since when and by whom, as far as that is on record."""
    if host.cordoned_for is not None:
        return f"cordoned for {host.cordoned_for}"
    if host.cordon is None:
        return "cordoned"
    reason = f": {host.cordon.reason}" if host.cordon.reason else ""
    return f"cordoned since {show_moment(host.cordon.at)} by {host.cordon.by}{reason}"
