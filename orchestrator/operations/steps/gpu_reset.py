# SPDX-License-Identifier: Apache-2.0
"""A GPU that is closed and empty is reset and tried before VMs get it again. The kernel resets it by what it knows of
the GPU (``reset_method``) on its way back from vfio-pci, as after every VM that had all of it: its driver takes it
anew, and its virtual functions are switched as they were."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from orchestrator.core.actions.bug_reports import CollectBugReport
from orchestrator.core.actions.host_actions import BindVfio, RestoreDriver, SetMigMode
from orchestrator.core.errors import Conflict, Fatal, Retryable, VgpuctlError, WorldError
from orchestrator.core.gpu.health import FUNCTIONS, GpuSignal, closing_fault
from orchestrator.core.gpu.health_states import failed_reset, not_waived, went_well, with_reboot
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.operations.context import Context
from orchestrator.operations.gpu_health import ACTOR, gpu_faults, put_health, users_of_gpu
from orchestrator.operations.step import Step
from orchestrator.operations.steps.driver import POLL_S, remove_probe, try_vgpu_on

BACK_WITHIN_S: Final = 120.0
QUIET_POLL_S: Final = 30.0


def _gpu(context: Context) -> GpuSnapshot:
    """:raises Retryable: ``gpu.missing``: it is not on its bus, yet or any more"""
    address = context.text("gpu")
    seen = next((gpu for gpu in context.observe().gpus if gpu.address == address), None)
    if seen is None:
        raise Retryable(
            "gpu.missing",
            f"GPU {address} is not there",
            hint=f"'vgpuctl host reboot {context.host_name}'; reseat it if that is no help",
        )
    return seen


def _check_empty(context: Context) -> str:
    with context.world.store.read() as tx:
        health = tx.hosts.get(context.host_name).health_of(context.text("gpu"))
        vms = users_of_gpu(tx, context.host_name, context.text("gpu"))
    if health is None or health.state != "quarantined" or vms:
        raise Conflict("gpu.in_use", "the GPU was returned, or VMs have a place on it", hint="begin it again")
    return health.cause


def _left_to_a_person(context: Context) -> None:
    """A person who cancels a reset that began by itself closes the GPU with that: none begins again by itself."""
    with context.begin() as tx:
        host, gpu = tx.hosts.get(context.host_name), context.text("gpu")
        before = host.health_of(gpu)
        if before is not None and before.mends and tx.operations.is_cancelled(context.operation_id):
            tx.gpu_health.put(host.name, gpu, replace(before, by=ACTOR), changed=False)


def _reset(context: Context) -> str:
    gpu, model = context.text("gpu"), context.text("model")
    if context.inputs.get("rebooted") is True:
        return "its host was rebooted instead"
    if context.inputs.get("mig") is True:
        context.perform(SetMigMode(gpu=gpu, on=False))
    context.perform(BindVfio(vm=context.operation_id, gpu=gpu, model=model))
    _back_to_driver(context)
    return model


def _back_to_driver(context: Context) -> None:
    gpu = context.text("gpu")
    context.perform(RestoreDriver(vm=context.operation_id, gpu=gpu))
    if context.inputs.get("mig") is True:
        context.perform(SetMigMode(gpu=gpu, on=True))


def _undo_reset(context: Context) -> None:
    report = _bug_report(context)
    _back_to_driver(context)
    _mark(context, report, mends=True)


def _remains(context: Context) -> tuple[str, ...]:
    return (f"GPU {context.text('gpu')} of host {context.host_name}: vfio-pci may have it, or its reset has failed",)


def _answers(context: Context) -> str:
    """:raises Fatal: ``gpu.not_well``: not within :data:`BACK_WITHIN_S`"""
    clock = context.world.clock
    end = clock.monotonic() + BACK_WITHIN_S
    while True:
        try:
            wrong = _wrong_with(context, _gpu(context))
        except WorldError as error:
            wrong = error.message
        if wrong is None:
            return "its driver has it, and nothing is wrong with it"
        if clock.monotonic() > end:
            raise _not_well(context, wrong)
        context.pause(POLL_S)


def _wrong_with(context: Context, gpu: GpuSnapshot) -> str | None:
    if gpu.driver != context.text("driver") or gpu.problems:
        return ", ".join(gpu.problems) or f"{gpu.driver or 'no driver'} has it"
    with context.world.store.read() as tx:
        host, snapshot = tx.hosts.get(context.host_name), tx.hosts.snapshot(context.host_name)
        enabled = gpu.address in tx.hosts.enabled_by_us(context.host_name)
        faults = () if snapshot is None else gpu_faults(tx, host, snapshot, gpu.address)
    own = [fault for fault in faults if fault.signal.name != FUNCTIONS]  # those are closed alone
    closing = closing_fault(not_waived(own, host.health_of(gpu.address)))
    if closing is not None:
        return closing.signal.words
    lacks = enabled and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs
    return "its virtual functions are not back" if lacks else None


def _try(context: Context) -> str:
    return try_vgpu_on(context, [_gpu(context)])


def _stays_quiet(context: Context) -> str:
    """:raises Fatal: ``gpu.not_well``: something new was told of it meanwhile"""
    before, left_s = _own_signals(_gpu(context)), float(context.world.limits.gpu_trial)
    while left_s > 0:
        context.pause(min(left_s, QUIET_POLL_S))
        left_s -= QUIET_POLL_S
        new = [signal for signal in _own_signals(_gpu(context)) if signal not in before]
        if new:
            raise _not_well(context, _words(new))
    with context.begin() as tx:
        host, gpu = tx.hosts.get(context.host_name), context.text("gpu")
        health = host.health_of(gpu)
        if health is None:
            return "it was returned meanwhile"
        now = tx.time.no_earlier(context.world.clock.now())
        for address, its in ((gpu, health), *health.functions):  # its functions were reset with it
            if its.mends:
                put_health(tx, tx.hosts.get(host.name), gpu, address, went_well(its, now), changed=True)
    return "it is on watch" if health.mends else f"it stays {health.state}: {health.cause}"


def _own_signals(gpu: GpuSnapshot) -> list[GpuSignal]:
    """Without those of one virtual function, which is judged alone."""
    return [signal for signal in gpu.signals if not signal.function]


def _not_well(context: Context, wrong: str) -> Fatal:
    what = "host's reboot" if context.inputs.get("rebooted") is True else "reset"
    return Fatal(
        "gpu.not_well",
        f"GPU {context.text('gpu')} is not well after its {what}: {wrong}",
        hint=f"'vgpuctl host reboot {context.host_name}', or replace it",
    )


def _words(signals: Iterable[GpuSignal]) -> str:
    return "; ".join(signal.words for signal in signals)


def mark_failed(context: Context) -> None:
    """Its driver may not have it: no other reset opens it, a person does."""
    _mark(context, _bug_report(context), mends=False)


def _mark(context: Context, report: str, *, mends: bool) -> None:
    """Why its reset has failed, and what its host tells of it since then: a reboot forgets that. One whose reset was
    cancelled is as before; so is one that a person quarantined."""
    with suppress(WorldError):  # else what was seen last has to do
        context.observe()
    with context.begin() as tx:
        error = tx.operations.get(context.operation_id).operation.error or {}
        host, gpu = tx.hosts.get(context.host_name), context.text("gpu")
        before = host.health_of(gpu)
        if before is not None and (before.mends or before.by == ACTOR) and "message" in error:
            now = tx.time.no_earlier(context.world.clock.now())
            why, output = str(error["message"]), str(error.get("details") or "")
            snapshot = tx.hosts.snapshot(host.name)
            new = _new_signals(context, snapshot)
            after = failed_reset(before, now, by=ACTOR, why=why, signals=new, output=f"{output}\n{report}")
            after = after if snapshot is None else with_reboot(before, after, snapshot.boot_id)
            tx.gpu_health.put(host.name, gpu, replace(after, mends=mends), changed=True)
            outcome = "; ".join((after.cause, *after.evidence))
            tx.audit.append(at=now, actor=ACTOR, action="reset_failed", subject=f"{host.name}/{gpu}", outcome=outcome)


def _bug_report(context: Context) -> str:
    """Where the driver's own report is, which a reboot would make too late, or why there is none; "" of a reset that
    was cancelled."""
    with context.world.store.read() as tx:
        if "message" not in (tx.operations.get(context.operation_id).operation.error or {}):
            return ""
    try:
        made = context.perform(CollectBugReport(report=context.operation_id))
    except VgpuctlError as error:
        return f"no bug report of the driver: {error.message}"
    return f"bug report of the driver, on its host: {made.message}"


def _new_signals(context: Context, snapshot: HostSnapshot | None) -> list[GpuSignal]:
    """Of the GPU, since its reset began."""
    known = context.inputs.get("signals")
    before = [tuple(signal) for signal in known] if isinstance(known, list) else []
    seen = () if snapshot is None else snapshot.gpus
    of_gpu = (signal for gpu in seen if gpu.address == context.text("gpu") for signal in _own_signals(gpu))
    return [signal for signal in of_gpu if (signal.name, signal.at) not in before]


CHECK_EMPTY = Step(name="gpu_empty.1", title="it is empty", do=_check_empty, undo=_left_to_a_person)
RESET = Step(name="reset_gpu.1", title="reset", do=_reset, undo=_undo_reset, remains=_remains)
ANSWERS = Step(name="gpu_answers.1", title="the GPU answers", do=_answers, no_undo_reason="it only observes")
TRY = Step(
    name="probe_gpu.1", title="try a vGPU", do=_try, undo=remove_probe,
    remains=lambda context: (f"vGPU of {context.operation_id} on GPU {context.text('gpu')}, made to try it",),
)  # fmt: skip
QUIET = Step(name="gpu_quiet.1", title="it stays well", do=_stays_quiet, no_undo_reason="it is the last step")
