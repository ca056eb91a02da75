# SPDX-License-Identifier: Apache-2.0
"""Copies of disks, made in the background while the operation that wants one asks for it again and again: nothing else
that is asked of the VM has to wait for it, and whatever another operation asks ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.disk_snapshots import LongCopy
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Unknown

_ROUND_S: Final = 2.0
"""How long whoever asks is kept waiting: most copies of small disks are done by then."""
_END_S: Final = 120.0
"""Less than a controller waits for an answer. What was copied may still have to be written down."""

Copying = LongCopy | UsesRepository
Work = Callable[..., ActionResult]
"""Given the action, and what is set when it is to end."""


class _Copy:
    """``wanted``: by which operation, and for what."""

    def __init__(self, wanted: tuple[str, Copying], work: Work) -> None:
        self.wanted, self.ended = wanted, threading.Event()
        self._work = work
        self._outcome: ActionResult | BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="copy", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._work(self.wanted[1], self.ended)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks, which raises it
            self._outcome = error

    def outcome(self) -> ActionResult:
        """Of one that is over. :raises BaseException: what it failed of"""
        if not isinstance(self._outcome, ActionResult):
            raise self._outcome or Unknown("volume.hung", "the copy ended without a word", hint="look at the host")
        return self._outcome


class Copies:
    """One in each turn (of a VM; of a backup that is verified or removed) at a time; all is asked for in that turn."""

    def __init__(self) -> None:
        self._of_vms: dict[str, _Copy] = {}

    def go_on(self, turn: str, action: Copying, operation: str, work: Work) -> ActionResult:
        """Begin it, unless it is begun. How it ended, or that it is unfinished: then it is to be asked for again."""
        copy = self._of_vms.get(turn)
        if copy is None:
            copy = self._of_vms[turn] = _Copy((operation, action), work)
        copy.thread.join(_ROUND_S)
        if copy.thread.is_alive():
            return ActionResult(changed=True, unfinished=True)
        del self._of_vms[turn]
        return copy.outcome()

    def end_others(self, vm: str, operation: str, action: HostAction | None) -> None:
        """One that the VM has for anything else than this action of this operation; nothing of it is left.

        :raises Unknown: ``volume.hung``"""
        copy = self._of_vms.get(vm)
        if copy is None or copy.wanted == (operation, action):
            return
        copy.ended.set()
        copy.thread.join(_END_S)
        if copy.thread.is_alive():
            raise Unknown("volume.hung", "the host's disk did not answer in time", hint="look at the host")
        del self._of_vms[vm]

    def end_all(self) -> None:
        """The agent stops. Nobody waits for them: what is left of one is removed when it starts again."""
        for copy in list(self._of_vms.values()):
            copy.ended.set()
