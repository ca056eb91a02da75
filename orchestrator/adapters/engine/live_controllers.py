# SPDX-License-Identifier: Apache-2.0
"""Which controllers live: each raises a number of its own, and the others count how often they saw it unchanged.

No clock is compared, so neither a wrong clock nor a pause of the database makes a living controller look dead.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping

from orchestrator.core.controller import controller_of, process_of
from orchestrator.store.database import Store

_MISSED = 3
"""A controller that was seen unchanged as many times in a row has gone."""
log = logging.getLogger(__name__)


def process_name(controller: str) -> str:
    """Of this process alone: machines that were cloned, and containers, have the same host name and directories."""
    return process_of(controller, secrets.token_hex(3))


class LiveControllers:
    """What this controller knows of all. ``alone``: the database can have no other controller."""

    def __init__(self, store: Store, name: str, *, alone: bool) -> None:
        """``name``: of this process, which no other one has ever had."""
        self._store = store
        self.name = name
        self._alone = alone
        self._seen: dict[str, tuple[int, int]] = {}
        self._beaten = 0
        self.rolled_back = False
        """The database has forgotten what this controller wrote: it was restored."""
        self.leads = True
        """Of those that live it is the one that takes over what others have left."""
        self.living = frozenset((name,))
        """Those that the last beat has seen."""
        self.double: str | None = None
        """What is to be said of another process that lives and has the name of this controller."""

    def beat(self) -> frozenset[str]:
        """Say that this one lives; who does. What was not committed has not been: the next beat says it again.

        :raises WorldError: the database cannot be asked, which says nothing about it"""
        if self._alone:
            return frozenset((self.name,))
        with self._store.begin() as tx:
            beats = tx.controllers.beat(self.name)
            seen = {name: self._looked(name, count) for name, count in beats.items()}
            gone = {name for name, (_, missed) in seen.items() if missed >= _MISSED}
            for name in gone:
                tx.controllers.remove(name)
        # One that others took for dead begins at 1 again; any other step back is the database's own.
        self.rolled_back = self.rolled_back or 1 < beats[self.name] <= self._beaten
        self._beaten = beats[self.name]
        self._notice_double(beats)
        self._seen = seen
        self.living = frozenset(seen.keys() - gone)
        self.leads = min(self.living) == self.name
        return self.living

    def _notice_double(self, beats: Mapping[str, int]) -> None:
        """A row that grows is no remainder of the process that was here before."""
        controller = controller_of(self.name)
        others = beats.keys() - {self.name}
        grown = {name for name in others if name in self._seen and beats[name] > self._seen[name][0]}
        doubles = sorted(name for name in grown if controller_of(name) == controller)
        if doubles and self.double is None:
            log.error("another process is the controller %s, too: was its machine cloned?", controller)
        if doubles:
            self.double = (
                f"{len(doubles)} more processes are the controller {controller}: "
                "give each machine a host name of its own, or each server another state directory"
            )
        elif not doubles and not any(controller_of(name) == controller for name in others):
            self.double = None

    def leave(self) -> None:
        """This controller stops: what it has not finished may be taken at once."""
        if not self._alone:
            with self._store.begin() as tx:
                tx.controllers.remove(self.name)

    def _looked(self, name: str, count: int) -> tuple[int, int]:
        before, missed = self._seen.get(name, (None, 0))
        return (count, missed + 1 if count == before else 0)
