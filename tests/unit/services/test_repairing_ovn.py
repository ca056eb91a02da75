# SPDX-License-Identifier: Apache-2.0
"""What a comparison of OVN's northbound costs this server once it has written what differed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

import pytest

from orchestrator.core.errors import Retryable
from orchestrator.core.northbound.rows import Operation, RowChange
from orchestrator.ports.overlay import NorthboundSession
from orchestrator.services.northbound import NorthboundKeeper
from tests.fakes.control_plane import plane_with


class _Change(RowChange):
    def __eq__(self, other: object) -> bool:
        raise AssertionError("of 20,000 changes that is 200 million times, 45 s of processor time")

    def __hash__(self) -> int:
        return id(self)


class _Takes:
    """A northbound that takes everything, or refuses it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses, self.asked = refuses, 0

    def open(self) -> AbstractContextManager[NorthboundSession]:
        return nullcontext(cast("NorthboundSession", self))

    def change(self, operations: Sequence[Operation]) -> None:
        del operations
        self.asked += 1
        if self.refuses:
            raise Retryable("ovn.refused", "OVN's database refused what it was asked")


def test_what_was_written_is_not_looked_for_change_by_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a northbound that was lost, or an upgrade that has all groups made anew."""
    changes = tuple(_Change(words=f"row {number}", operations=()) for number in range(3))
    monkeypatch.setattr("orchestrator.services.northbound.compare", lambda *_: changes)
    with plane_with(tmp_path) as plane:
        keeper = NorthboundKeeper(
            store=plane.store, northbound=_Takes(), clock=plane.world.clock, leads=lambda: True
        )  # fmt: skip
        assert len(keeper.repair()) == len(changes)


def test_a_northbound_that_refuses_everything_is_not_asked_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = tuple(RowChange(words=f"row {number}", operations=()) for number in range(5000))
    monkeypatch.setattr("orchestrator.services.northbound.compare", lambda *_: changes)
    refuses = _Takes(refuses=True)
    with plane_with(tmp_path) as plane:
        keeper = NorthboundKeeper(store=plane.store, northbound=refuses, clock=plane.world.clock, leads=lambda: True)
        with pytest.raises(Retryable, match="row 0"):
            keeper.repair()
    assert refuses.asked < 100
