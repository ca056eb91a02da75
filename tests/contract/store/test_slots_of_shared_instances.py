# SPDX-License-Identifier: Apache-2.0
"""What was claimed of an RTX PRO 6000 in its memory slots is claimed in GiB once several vGPUs share its instances."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Connection, create_engine, text

from orchestrator.store.schema import alembic_config
from tests.fakes.control_plane import control_plane
from tests.operations.shared_instances import PROFILE, with_sibling


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> str:
    if backend == "postgresql":
        return str(request.getfixturevalue("postgres").database())
    return f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}"


def slots(connection: Connection) -> list[int]:
    return [int(row[0]) for row in connection.execute(text("SELECT slot FROM slot_claims ORDER BY slot"))]


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_whole_instance_at_the_second_place_takes_its_24_gib_and_back_its_three_slots(
    tmp_path: Path, url: str
) -> None:
    plane = control_plane(tmp_path, url=url)
    with_sibling(plane)
    plane.store.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        assert slots(connection) == list(range(8))
        command.downgrade(alembic_config(connection), "0042")
        assert slots(connection) == list(range(8))  # nobody could have a part of an instance then
        (devices,) = connection.execute(text("SELECT CAST(devices AS TEXT) FROM vms")).one()
        then = str(devices).replace(PROFILE, PROFILE.replace("8Q", "24Q"))
        then = then.replace('"gi_start": 0', '"gi_start": 3').replace('"gi_start":0', '"gi_start":3')
        connection.execute(text("UPDATE vms SET devices = :then"), {"then": then})
        connection.execute(text("DELETE FROM slot_claims WHERE slot NOT IN (3, 4, 5)"))
        for revision, wanted in (("head", range(24, 48)), ("0042", range(3, 6)), ("head", range(24, 48))):
            (command.upgrade if revision == "head" else command.downgrade)(alembic_config(connection), revision)
            assert slots(connection) == list(wanted)
    engine.dispose()
