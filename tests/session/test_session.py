# SPDX-License-Identifier: Apache-2.0
"""What docs/tutorial shows is what happens: every command of the recording is typed again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.session.play import Said, played
from tests.session.record import SIMULATED, cast_of, page_of, recorded
from tests.session.scenes import SCENES
from tests.session.site import simulated_site


def test_what_was_recorded_still_happens_can_be_played_and_is_on_the_page(tmp_path: Path) -> None:
    """In one test: several would be shared out over workers, each of which would type all of it."""
    with simulated_site(tmp_path) as site:
        session = list(played(site, tmp_path))
    assert [(said.command, said.answer) for said in session if said.status != 0] == []
    assert [f"{said.person}$ {said.command}" for said in session] == [one for one, _ in recorded(SIMULATED.cast)]
    for (command, answer), said in zip(recorded(SIMULATED.cast), session, strict=True):
        shown = Said(said.scene, said.person, said.command, answer, 0)
        assert shown.shape - said.shape == set(), f"{command}: run make record-session, and read the difference"
    for text in (SIMULATED.cast.read_text(encoding="utf-8"), cast_of(session, SIMULATED)):
        _can_be_played(text)
    page = SIMULATED.page.read_text(encoding="utf-8")
    assert all(f"\n## {scene.title}\n" in page for scene in SCENES)
    for command, answer in recorded(SIMULATED.cast):
        assert f"```text\n{command}\n{answer}".rstrip() + "\n```\n" in page
    assert page_of(session, SIMULATED).count("```text") == page.count("```text")


def _can_be_played(text: str) -> None:
    """And names no machine."""
    header, *events = map(json.loads, text.splitlines())
    assert (header["version"], header["width"] > 0, header["height"] > 0) == (2, True, True)
    times = [event[0] for event in events]
    assert times == sorted(times)
    assert {event[1] for event in events} == {"o"}
    assert "/tmp" not in text
    assert "127.0.0.1" not in text


def test_what_is_shown_of_an_answer_tells_other_answers_apart() -> None:
    first = Said(0, "tenant", "x", "NAME  STATE\nvm-1  running\n", 0)
    assert first.shape == {"NAME", "vm-N"}
    assert Said(0, "tenant", "x", "no VMs yet: create one\n", 0).shape == {"no VMs yet"}
