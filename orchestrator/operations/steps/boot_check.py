# SPDX-License-Identifier: Apache-2.0
"""Seeing whether a VM that was made of a backup boots."""

from __future__ import annotations

from typing import Final

from orchestrator.core.errors import Fatal
from orchestrator.core.vms.boot_check import BootOutcome, seen_of
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.domain import addresses_of_running

_EVERY_S: Final = 2
_MOST: Final = 64 * 1024
"""Bytes of the console that are read."""


def _see_boot(context: Context) -> str:
    """Until it asks for a login, as long as it has. What was seen is written down whatever comes of it.

    :raises Fatal: ``backup.silent``, ``vm.guest_died``, ``vm.gone``"""
    line, timeout_s = "", context.number("boot_timeout_s")
    for _ in range(0, timeout_s, _EVERY_S):
        asks, line = seen_of(context.world.link.console_log(context.host(), context.subject, _MOST))
        if asks:
            _write_down(context, "login", line)
            return f"asks for a login: {line}"
        try:
            addresses_of_running(context)
        except Fatal:
            _write_down(context, "ended", line)
            raise
        context.pause(_EVERY_S)
    _write_down(context, "output" if line else "silent", line)
    if not line:
        hint = "does its guest write to a serial console? more time: --boot-timeout"
        raise Fatal("backup.silent", f"its console showed nothing within {timeout_s} s", hint=hint)
    warning = f"no login was asked for within {timeout_s} s; its console showed last: {line}"
    context.warnings.append(warning)
    return warning


def _write_down(context: Context, outcome: BootOutcome, line: str) -> None:
    with context.begin() as tx:
        at = tx.time.mark() or context.world.clock.now()
        tx.backups.booted(context.text("backup"), at, outcome, line)


SEEN = Step(name="boot_seen.1", title="see it boot", do=_see_boot, no_undo_reason="it only observes")
