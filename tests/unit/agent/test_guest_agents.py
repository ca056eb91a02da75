# SPDX-License-Identifier: Apache-2.0
"""A guest is frozen while a copy of its disk begins, and never any longer: whatever fails, and whoever dies."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.guest_agents import GuestAgents
from orchestrator.core.errors import Fatal
from tests.fakes.guest_agent import REFUSED, SILENT, GuestWithAgent

VM = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1")
    yield made
    made.close()


class Copying:
    """What begins, and how the guest was then."""

    def __init__(self, guest: GuestWithAgent, ledger: Ledger) -> None:
        self.guest, self.ledger = guest, ledger
        self.found: list[tuple[bool, bool]] = []
        domains: Any = guest
        self.agents = GuestAgents(domains, ledger)

    def begin(self) -> None:
        self.found.append((self.guest.frozen, bool(self.left)))

    @property
    def left(self) -> set[str]:
        """Guests that may be frozen, as the next agent would read it."""
        return set(self.ledger.owned("frozen:"))

    def quiesce(self) -> str:
        return self.agents.quiesce(VM, self.begin)


def background() -> None:
    """Until nobody thaws there any more."""
    for thread in threading.enumerate():
        if thread.name == "thaw":
            thread.join(30)
            assert not thread.is_alive()


def test_its_file_systems_stand_still_while_the_copy_begins(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(), ledger)
    assert copying.quiesce() == "yes"
    assert copying.found == [(True, True)], "written down before"
    assert (copying.guest.frozen, copying.left) == (False, set())
    assert copying.guest.asked == ["freeze", "thaw"]
    assert max(copying.guest.limits) <= 10


def test_a_guest_without_an_agent_is_not_asked(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(connected=False), ledger)
    assert copying.quiesce() == "no guest agent"
    assert copying.found == [(False, False)]
    assert copying.guest.asked == []


def test_a_copy_that_cannot_begin_leaves_no_frozen_guest(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(), ledger)

    def fails() -> None:
        raise Fatal("snapshot.failed", "libvirt refused")

    with pytest.raises(Fatal):
        copying.agents.quiesce(VM, fails)
    assert (copying.guest.frozen, copying.left) == (False, set())


@pytest.mark.parametrize(
    ("freeze", "late", "why"),
    [(REFUSED, False, "guest agent: no freeze"), (SILENT, True, "guest agent: no freeze")],
    ids=["refused", "frozen too late"],
)
def test_a_guest_that_does_not_say_that_it_is_frozen_is_thawed_first(
    ledger: Ledger, freeze: int, late: bool, why: str
) -> None:
    guest = GuestWithAgent()
    guest.refuses, guest.late = {"freeze": freeze}, late
    copying = Copying(guest, ledger)
    assert copying.quiesce() == f"guest agent refused: {why}"
    assert copying.found == [(False, False)]
    assert not guest.frozen


def test_what_froze_nothing_is_not_called_quiesced(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(file_systems=0), ledger)
    assert copying.quiesce() == "guest agent refused: it froze nothing"
    assert len(copying.found) == 1


def test_a_guest_that_thawed_by_itself_is_not_called_quiesced(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(), ledger)
    said = copying.agents.quiesce(VM, lambda: setattr(copying.guest, "frozen", False))
    assert said.startswith("guest agent refused: ")


@pytest.mark.parametrize("silent", [SILENT, libvirt.VIR_ERR_OPERATION_INVALID], ids=["silent", "paused"])
def test_a_guest_that_does_not_answer_is_asked_until_it_does(ledger: Ledger, silent: int) -> None:
    """By whoever froze it for some seconds, then in the background: no copy waits for it."""
    guest = GuestWithAgent()
    guest.refuses = {"thaw": silent}
    copying = Copying(guest, ledger)
    asked: list[bool] = []

    def answers_at_last() -> None:
        asked.append(threading.current_thread().name == "thaw")
        if guest.timing.now > 60:
            guest.refuses = {}

    guest.timing.while_waiting = answers_at_last
    assert copying.quiesce().startswith("guest agent refused: ")
    background()
    assert (guest.frozen, copying.left) == (False, set())
    assert asked.count(False) < asked.count(True)


def test_one_that_may_be_frozen_still_is_not_frozen_again(ledger: Ledger) -> None:
    copying = Copying(GuestWithAgent(), ledger)
    ledger.claim(f"frozen:{VM}", VM, until_reboot=True)
    assert copying.quiesce() == "guest agent refused: it has not answered since it was frozen last"
    assert copying.guest.asked == []
    assert len(copying.found) == 1


def test_a_guest_that_refuses_to_thaw_is_not_asked_for_ever(ledger: Ledger) -> None:
    guest = GuestWithAgent()
    guest.refuses = {"freeze": REFUSED, "thaw": REFUSED}
    copying = Copying(guest, ledger)
    assert copying.quiesce() == "guest agent refused: guest agent: no freeze"
    assert guest.asked.count("thaw") == 3
    assert copying.left == set()


def test_the_next_agent_thaws_what_one_has_left_that_died(tmp_path: Path) -> None:
    """Killed while the guest was frozen: nothing of it ran any more, and its ledger is as it was on disk then."""
    guest, first = GuestWithAgent(), Ledger(tmp_path / "first", site="s", epoch=1, boot_id="boot-1")
    Copying(guest, first).agents.quiesce(VM, lambda: shutil.copytree(tmp_path / "first", tmp_path / "second"))
    first.close()
    guest.frozen = True
    second = Ledger(tmp_path / "second", site="s", epoch=1, boot_id="boot-1")
    later = Copying(guest, second)
    assert later.left == {VM}
    later.agents.thaw_left()
    background()
    assert (guest.frozen, later.left) == (False, set())
    second.close()


@pytest.mark.parametrize("gone", ["stopped", "host booted"])
def test_what_runs_no_more_is_frozen_no_more(tmp_path: Path, gone: str) -> None:
    guest, first = GuestWithAgent(), Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1")
    first.claim(f"frozen:{VM}", VM, until_reboot=True)
    first.close()
    guest.runs = gone != "stopped"
    later = Copying(guest, Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1" if gone == "stopped" else "boot-2"))
    later.agents.thaw_left()
    background()
    assert (guest.asked, later.left) == ([], set())
    later.ledger.close()
