# SPDX-License-Identifier: Apache-2.0
"""What docs/tutorial/three-persons-lab.md shows is what happens on two lab hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.lab import lab_site
from tests.session.play import Said, played
from tests.session.record import on_lab_hosts, recorded

pytestmark = [pytest.mark.lab, pytest.mark.soak]


def test_every_command_of_the_recording_succeeds_and_answers_as_it_shows(tmp_path: Path) -> None:
    with lab_site(tmp_path) as (site, scenes):
        session = list(played(site, tmp_path, scenes))
    assert [(said.command, said.answer) for said in session if said.status != 0] == []
    shown = recorded(on_lab_hosts(scenes).cast)
    for (command, answer), said in zip(shown, session, strict=True):
        before = Said(said.scene, said.person, said.command, answer, 0)
        assert before.shape - said.shape == set(), f"{command}: run make record-session-lab, and read the difference"
