# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.moves.forecast import MeasuredCopy
from orchestrator.core.moves.live_forecast import MeasuredMove
from orchestrator.store.database import Store
from orchestrator.store.disk_copies import MAX_OF_PAIR, DiskCopy


def copy(number: int, source: str = "a", target: str = "b") -> DiskCopy:
    return DiskCopy(
        operation=f"{source}{target}-{number:03}", source=source, target=target, size_bytes=2**40 + number,
        seconds=1.5, low_s=None, high_s=2.5, at=float(number),
    )  # fmt: skip


def test_the_newest_copies_of_two_hosts_are_kept_and_those_of_others_stand_in(store: Store) -> None:
    with store.begin() as tx:
        assert tx.disk_copies.measured("a", "b") == ()
        for number in range(MAX_OF_PAIR + 2):
            tx.disk_copies.add(copy(number))
        tx.disk_copies.add(copy(3, "b", "a"))
    with store.read() as tx:
        sizes = [copied.size_bytes - 2**40 for copied in tx.disk_copies.measured("a", "b")]
        assert sizes == list(reversed(range(2, MAX_OF_PAIR + 2)))
        assert tx.disk_copies.measured("b", "a") == (MeasuredCopy(2**40 + 3, 1.5),)
        assert len(tx.disk_copies.measured("c", "d")) == MAX_OF_PAIR
        assert tx.disk_copies.of_operation(copy(0).operation) is None
        assert tx.disk_copies.of_operation(copy(7).operation) == copy(7)


def test_a_copy_that_is_done_again_is_one(store: Store) -> None:
    with store.begin() as tx:
        tx.disk_copies.add(copy(1))
        tx.disk_copies.add(copy(1))
        assert len(tx.disk_copies.measured("a", "b")) == 1


def test_vms_that_moved_while_they_ran_are_kept_beside_disks(store: Store) -> None:
    move = replace(copy(1), operation="m", sent_bytes=5, memory_bytes=4, dirty_per_s=3, device_bytes=None, pause_s=0.5)
    with store.begin() as tx:
        tx.disk_copies.add(copy(1))
        tx.disk_copies.add(move)
        load = MoveLoad(memory_bytes=4, dirty_per_s=3, device_bytes=None)
        assert tx.disk_copies.measured_live("a", "b") == (MeasuredMove(load, 2**40 + 1, 5, 1.5, 0.5),)
        assert tx.disk_copies.measured("a", "b") == (MeasuredCopy(2**40 + 1, 1.5),)
        assert tx.disk_copies.of_operation("m") == move
