# SPDX-License-Identifier: Apache-2.0
"""A restored database takes a data volume for new that was made and filled since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.server.backup import back_up, restore
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, control_plane, create_vm
from tests.operations import volumes

NOW = 1_800_000_000.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Of the restored database; the volume's file has a tenant's data in it."""
    old = tmp_path / "old"
    (old / "secrets").mkdir(parents=True)
    (old / "secrets" / "database_key").write_bytes(KEY)
    before = control_plane(old)
    volumes.with_stopped_vm(before)
    back_up(old, tmp_path / "backup")
    volumes.attach(before)
    before.engine.drain()
    volumes.detach(before)
    before.engine.drain()
    before.store.close()
    restore(tmp_path / "new", tmp_path / "backup", NOW)
    made = control_plane(tmp_path / "new", hosts=before.hosts)
    made.ids.count = before.ids.count
    yield made
    made.store.close()


def fails_at(plane: ControlPlane, name: str) -> None:
    left = [Fatal("test.refused", "it was refused")]

    def strike(_number: int, moment: str, effect: str) -> Fatal | None:
        return left.pop() if left and (moment, effect) == ("before", name) else None

    plane.hosts.strike = strike


def check_kept(plane: ControlPlane) -> None:
    """The file is there, and the database knows that, and where."""
    (file,) = plane.machine(T4_HOST).data
    assert plane.machine(T4_HOST).data[file][1] is None
    (volume,) = plane.services.volumes.list(None)
    assert (volume.volume.state, volume.volume.host, volume.volume.vm) == ("ready", T4_HOST, None)


@pytest.mark.fault("F99")
def test_taking_an_attach_back_leaves_a_volume_that_was_there_before(plane: ControlPlane) -> None:
    fails_at(plane, "DefineDomain")
    operation = volumes.attach(plane)
    plane.engine.drain()
    assert plane.services.operations.get(str(operation)).state == "undone"
    check_kept(plane)


@pytest.mark.fault("F99")
def test_taking_a_create_back_leaves_a_volume_that_was_there_before(plane: ControlPlane) -> None:
    fails_at(plane, "StartDomain")
    operation = plane.services.vms.create(replace(create_vm("other"), volumes=("data",), host=T4_HOST)).operation
    plane.engine.drain()
    assert plane.services.operations.get(str(operation)).state == "undone"
    check_kept(plane)


def test_a_volume_that_was_there_before_is_attached(plane: ControlPlane) -> None:
    operation = volumes.attach(plane)
    plane.engine.drain()
    assert plane.services.operations.get(str(operation)).state == "done"
    (volume,) = plane.services.volumes.list(None)
    assert (volume.volume.state, volume.volume.host) == ("ready", T4_HOST)
