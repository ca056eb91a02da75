# SPDX-License-Identifier: Apache-2.0
"""A running VM that goes to another host, within the frame of moving.py: all that it needs is made there first.

Its definition where it was is what says which of the two it is on: libvirt removes it there when the other host has
all of the VM, which waits then until it is started. So it runs on one of them at most, and whether it moved is never
guessed: a start is asked of the host that it leaves. That waits for whatever an earlier attempt had begun there; it
runs on then, or is not defined any more.
"""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.host_actions import DeleteVolume, StartDomain
from orchestrator.core.actions.live_move import LiveMove
from orchestrator.core.errors import Fatal, Unknown, VgpuctlError
from orchestrator.core.units import show_size
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.device import make_devices_at, remove_made
from orchestrator.operations.steps.domain import SHUT_DOWN, power_off
from orchestrator.operations.steps.move_forecast import forecast_of, load_of, note_going_on, note_moved
from orchestrator.operations.steps.moving import (
    MOVED,
    change_hosts,
    copy_disk,
    copy_text,
    delete_copy,
    let_go,
    most_per_s,
    place_claimed,
    place_of,
    place_text,
    share_disks,
    stop_awaits,
)
from orchestrator.operations.steps.storage import create_volume_action, send_image
from orchestrator.operations.steps.vm_record import set_vm_state
from orchestrator.store.transaction import Transaction

_NOT_HERE: Final = "vm.not_found"
_DOES_NOT_START: Final = frozenset({"vm.device_foreign", "vm.start_failed"})
"""Where it is defined and stopped, it needs more than a start: its host was booted meanwhile."""
_STOPPED: Final = frozenset({"shut_off", "crashed"})
_FAILED: Final = "move.failed"
"""libvirt or QEMU gave it up, on either host: the guest or a device is why."""
_TRIES: Final = 3
_PAUSE_S: Final = 5.0
_COLD: Final = "went_cold"
"""Input of an operation whose VM is shut down for its move after all."""


def _runs_on(context: Context) -> None:
    let_go(context, undone=True)
    set_vm_state(context, "running")


def _empty_disk(context: Context) -> None:
    """Made anew each time: only what the VM's own disk holds is copied over it. One in a pool is there already."""
    vm, image = context.known_vm(), context.image()
    share_disks(context)
    if vm.spec.pool is not None:
        return
    context.perform(DeleteVolume(vm=vm.id, volume=vm.volume))
    try:
        context.perform(create_volume_action(vm, image))
    except Fatal as error:
        if error.code != "image.missing":
            raise
        send_image(context, image)  # removed since the host was seen
        context.perform(create_volume_action(vm, image))


def _make_devices(context: Context) -> str:
    place = make_devices_at(context, place_of(context))
    return ", ".join(f"{device.type_name} on {device.parent}" for device in place.devices)


def _remove_devices(context: Context) -> None:
    remove_made(context, place_of(context).devices)


def _devices_text(context: Context) -> tuple[str, ...]:
    place = place_of(context)
    return tuple(f"vGPU {device.name} on GPU {device.gpu} of host {place.host}" for device in place.devices)


def _migrated_text(context: Context) -> tuple[str, ...]:
    """It may be all that there is of the VM."""
    source, place = context.text("source"), place_of(context)
    moved = f"VM {context.subject} is on host {place.host} with all it has if host {source} does not define it"
    return (moved,) if place.id != context.subject else ()


def _waits_text(context: Context) -> tuple[str, ...]:
    return (f"VM {context.subject}, which waits on host {context.host_name} to be started",)


def _start(context: Context) -> None:
    vm = context.known_vm()
    context.perform(StartDomain(vm=vm.id, boot_policy=vm.spec.boot_policy))


def _go_on(context: Context) -> str | None:
    _start(context)
    return note_going_on(context)


def _stayed(context: Context) -> bool:
    """Whether it is on the host that it was to leave."""
    with context.at(context.text("source")) as source:
        try:
            _start(source)
        except VgpuctlError as error:
            if error.code in _DOES_NOT_START:
                domain = source.observe_domain()
                if domain is None:
                    return False  # it was just going
                if domain.state not in _STOPPED:
                    raise
                context.warnings.append(f"it does not run on {source.host_name}: {error.message}")
            elif error.code == _NOT_HERE:
                return False
            else:
                raise
    return True


def _migrate(context: Context) -> str:
    with context.at(context.text("source")) as source:
        defined = source.observe_domain() is not None
    if defined and _is_left(context):
        defined = _stayed(context)
        if defined:
            power_off(context)
    if defined and context.inputs.get(_COLD) is True:  # of an attempt that ended in the middle
        return _go_cold(context)
    took = _tried(context) if defined else None
    if isinstance(took, VgpuctlError):
        return _fall_back(context, took)
    _check_came(context)
    return "; ".join(filter(None, [change_hosts(context), took]))


def _tried(context: Context) -> VgpuctlError | str | None:
    """It is gone where it was: how long that took; None: nobody knows. What the guest or a device fails of is tried
    again; the last of it is returned.

    :raises VgpuctlError: any other failure, and it stays"""
    for tries_left in reversed(range(_TRIES)):
        try:
            return _send(context)
        except VgpuctlError as error:
            if not _stayed(context):
                return None
            if error.code != _FAILED:
                raise
            if not tries_left:
                return error
            context.report(f"{error.message}; it is tried again")
            context.pause(_PAUSE_S)
            _empty_disk(context)
    raise AssertionError("it is tried at least once")


def _send(context: Context) -> str:
    with context.at(context.text("source")) as source:
        giver = source.host(), source.token(source.host())
    world, most, disk_bytes = context.world, most_per_s(context), context.inputs.get("copy_bytes")
    load, forecast = load_of(world.link, giver[0], context.subject), None
    if load is not None and isinstance(disk_bytes, int):
        forecast = forecast_of(world.store, load, disk_bytes, giver[0].name, context.host_name, most)
    wanted = LiveMove(
        vm=context.subject,
        devices=tuple(device.name for device in place_of(context).devices),
        max_bytes_per_s=most,
        max_pause_ms=None if forecast is None else forecast.max_pause_ms,
    )

    def progress(done: int, left: int) -> None:
        context.report(f"{show_size(done)} moved, {show_size(left)} left")
        context.pause(0.0)

    taker, begun = (context.host(), context.token(context.host())), world.clock.monotonic()
    moved = world.link.move_vm(*giver, *taker, wanted, progress)
    return note_moved(context, load, forecast, moved, world.clock.monotonic() - begun)


def _fall_back(context: Context, failed: VgpuctlError) -> str:
    """:raises VgpuctlError: ``failed``; it may not be shut down for it"""
    vm, inputs = context.known_vm(), context.inputs
    if vm.spec.tpm:  # a new one would be made for it, and the one that it has removed
        failed.hint = "it runs on where it is; the state of its TPM goes with it only while it runs"
        raise failed
    with context.world.store.read() as tx:
        may_stop = inputs.get("force") is True or stop_awaits(tx, vm.spec.tenant, context.world.clock.now()) is None
    if not (inputs.get("or_cold") is True and may_stop):
        name = f"{vm.spec.name} --tenant {vm.spec.tenant}"
        failed.hint = f"it runs on where it is; 'vgpuctl vm move {name} --cold' shuts it down for it"
        raise failed
    inputs[_COLD] = True
    with context.begin() as tx:
        tx.operations.put_inputs(context.operation_id, inputs)
    context.warnings.append(f"it was shut down for its move, which failed {_TRIES} times: {failed.message}")
    return _go_cold(context)


def _go_cold(context: Context) -> str:
    """What it has on the other host is what it boots with there; while it is defined where it was, it is there."""
    with context.at(context.text("source")) as source:
        SHUT_DOWN.do(source)
    copied = copy_disk(context)
    return f"{copied}; {change_hosts(context)}"


def _is_left(context: Context) -> bool:
    """Here, of an attempt whose end nobody saw."""
    domain = context.observe_domain()
    return domain is not None and domain.state not in _STOPPED


def _check_came(context: Context) -> None:
    """Somebody may have removed the definition where it was, and here is but an empty disk."""
    domain = context.observe_domain()
    if domain is None or domain.state not in {"paused", "running"}:
        raise Unknown(
            "vm.not_seen", f"VM {context.subject} is defined on neither host as one that runs",
            hint="look at both before the operation is abandoned", details=f"{domain and domain.state}",
        )  # fmt: skip


def _stay(context: Context) -> None:
    """What came of it is paused, and was never let run."""
    if not _stayed(context):
        _check_came(context)
        raise Unknown(
            "vm.moved",
            f"VM {context.subject} is on host {context.host_name} alone",
            hint=f"nothing of it is lost: 'vgpuctl operation retry {context.operation_id}' lets it go on there",
        )
    power_off(context)


def _settle(context: Context) -> None:
    def settled(tx: Transaction) -> None:
        tx.places.let_go(context.text("place"), context.evidence())
        tx.vms.set_state(context.subject, "running", operation=context.operation_id)

    context.write_at_end(settled)


LEAVING = Step(name="vm_leaving.1", title="claim a place", do=place_claimed, undo=_runs_on, remains=place_text)
EMPTY_DISK = Step(name="empty_disk.1", title="an empty disk", do=_empty_disk, undo=delete_copy, remains=copy_text)
DEVICES = Step(name="devices_on.1", title="vGPU", do=_make_devices, undo=_remove_devices, remains=_devices_text)
MIGRATE = Step(name="migrate.1", title="move it while it runs", do=_migrate, undo=_stay, remains=_migrated_text)
GO_ON = Step(name="go_on.1", title="let it go on there", do=_go_on, no_undo_reason=MOVED, remains=_waits_text)
SETTLED = Step(
    name="live_move_settled.1", title="release what it had there", do=_settle, no_undo_reason=MOVED,
    remains=place_text,
)  # fmt: skip


def given_up(context: Context) -> None:
    """The operator has cleaned up: the VM is where the database has it, and runs there."""
    let_go(context, undone=False)
    vm = context.vm()
    if vm is not None and vm.state != "lost":
        set_vm_state(context, "running", "running")
