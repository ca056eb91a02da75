# SPDX-License-Identifier: Apache-2.0
"""A round that reads thousands of hosts keeps no request waiting for its turn, and costs the others nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.core.interpreter import SHORT_S, short_turns
from orchestrator.reconcile.unchanged_hosts import UnchangedHosts
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction
from tests.fakes.control_plane import KEY, control_plane

USUAL_S = 0.005


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before)


def is_usual() -> bool:
    return sys.getswitchinterval() == pytest.approx(USUAL_S)


def is_short() -> bool:
    return sys.getswitchinterval() == pytest.approx(SHORT_S)


class CountedStore(Store):
    """Tells how long turns were whenever it was read."""

    found: list[bool]

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        self.found.append(is_short())
        with super().read() as tx:
            yield tx


def test_turns_are_short_while_all_hosts_are_read_and_as_usual_afterwards(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    told = CountedStore(f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}", key=KEY, new_site="site")
    told.found = []
    UnchangedHosts(told, plane.observer).read(0.0)
    assert told.found == [True]
    assert is_usual()
    told.close()
    plane.store.close()


def test_they_are_as_usual_when_the_last_of_several_is_done() -> None:
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert is_short(), "the other one is not done"
    second.__exit__(None, None, None)
    assert is_usual()
