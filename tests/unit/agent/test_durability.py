# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from orchestrator.agent.images.files import remove, written_whole
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.turns import Turns

EXTRA = 3


def test_the_ledger_is_on_the_disk_before_a_change_returns(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1")
    with ledger.file.read():
        assert ledger.file.one("PRAGMA synchronous") == (EXTRA,)


def test_a_file_and_its_name_are_synced_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    target = tmp_path / "volume"

    def fsync(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, target.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with written_whole(target, mode=0o600) as part:
        part.write_text("content")
    remove(target)
    assert synced == [(part.name, False), (tmp_path.name, True), (tmp_path.name, False)]


def test_actions_on_one_vm_wait_for_each_other_and_those_on_another_do_not() -> None:
    turns, inside = Turns(), threading.Event()
    with turns.of("a"):
        waiting = threading.Thread(target=_enter, args=(turns, "a", inside))
        waiting.start()
        with turns.of("b"):
            assert not inside.wait(0.2)
    assert inside.wait(60)
    waiting.join()


def _enter(turns: Turns, name: str, inside: threading.Event) -> None:
    with turns.of(name):
        inside.set()
