# SPDX-License-Identifier: Apache-2.0
"""An empty host reboots, and serves again once all that was well before is."""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions.reboots import RebootHost
from orchestrator.core.drivers.host_drivers import DueReboot
from orchestrator.core.errors import Conflict, Fatal, WorldError
from orchestrator.core.maintenance.maintenance import REBOOTING
from orchestrator.core.operation import OUT_OF_REACH
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.driver import POLL_S, SEEN_WITHIN_S, not_back
from orchestrator.operations.steps.driver_swap import BACK_WITHIN_S, not_returned
from orchestrator.operations.steps.host import back_to_ready

AGAIN_S: Final = 60.0
"""A host that answers so long after it was to go down is told once more: the answer was lost on the way there."""
REFUSED: Final = frozenset({"host.in_use", "host.reboot_refused"})
"""Nothing was done then."""


def _check_unused(context: Context) -> None:
    """:raises Conflict: ``host.in_use``"""
    running = [domain.name for domain in context.observe().domains if domain.active]
    if running:
        raise Conflict(
            "host.in_use",
            f"host {context.host_name} is to be rebooted and runs {', '.join(running[:5])}",
            hint=f"'vgpuctl doctor --host {context.host_name}' tells whose they are; others end theirs",
        )


def _reboot(context: Context) -> str:
    """Until it answers on another boot. A host out of reach is waited for: an earlier attempt may have begun it.

    :raises Fatal: ``host.not_back``, and what the agent refuses"""
    clock, boot, began = context.world.clock, context.text("boot"), float("-inf")
    end = clock.monotonic() + BACK_WITHIN_S
    context.report(f"{REBOOTING}: somebody has asked for it")
    while True:
        try:
            if context.world.link.observe(context.host()).boot_id != boot:
                return "it answers again"
            if clock.monotonic() > began + AGAIN_S:
                began = clock.monotonic()
                context.perform(RebootHost(boot=boot))
        except WorldError as error:
            if error.code not in OUT_OF_REACH:
                raise
        if clock.monotonic() > end:
            raise not_returned(context, DueReboot(why="it was asked for", boot_id=boot))
        context.pause(POLL_S)


def _answers(context: Context) -> str:
    """:raises Fatal: ``host.not_well``: not within :data:`SEEN_WITHIN_S`"""
    end = context.world.clock.monotonic() + SEEN_WITHIN_S
    while (wrong := _wrong_with(context)) is not None:
        if context.world.clock.monotonic() > end:
            raise Fatal(
                "host.not_well",
                f"host {context.host_name} is not as it was before its reboot: {wrong}",
                hint=f"'vgpuctl doctor --host {context.host_name}' tells more, dmesg and journalctl there say why",
            )
        context.pause(POLL_S)
    return "its driver, its GPUs and what lies on them are back"


def _wrong_with(context: Context) -> str | None:
    """Of what was well before: a GPU that was not need not be now."""
    well = context.inputs["well"]
    addresses = [str(gpu) for gpu in well] if isinstance(well, list) else []
    try:
        snapshot = context.observe()
    except WorldError as error:  # its agent is just starting
        return error.message
    gpus = {gpu.address: gpu for gpu in snapshot.gpus}
    for address in addresses:
        gpu = gpus.get(address)
        if gpu is None or gpu.driver is None or gpu.problems:
            return f"GPU {address}: {', '.join(gpu.problems) if gpu and gpu.problems else 'no driver has it'}"
    return not_back(context, gpus, addresses)


UNUSED = Step(
    name="host_unused.1", title="nothing runs there", do=_check_unused, undo=back_to_ready,
    remains=lambda context: (f"host {context.host_name} is not marked as ready",),
)  # fmt: skip
REBOOT = Step(name="reboot_host.1", title="reboot", do=_reboot, no_undo_reason=RebootHost.no_inverse)
ANSWERS = Step(name="host_well.1", title="it is as before", do=_answers, no_undo_reason="it only observes")
