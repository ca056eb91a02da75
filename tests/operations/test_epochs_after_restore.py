# SPDX-License-Identifier: Apache-2.0
"""Which epoch a host obeys after a restore: the agent's own ledger decides, and no clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.ledger import Ledger
from orchestrator.core.actions.host_actions import FencingToken
from orchestrator.core.errors import Denied
from orchestrator.server.backup import DATABASE, settle_restored
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, create_vm, plane_with
from tests.postgres.cluster import Cluster

BACKENDS = ("sqlite", "postgresql")
CLOCKS = {"right": 1_800_000_000.0, "years ahead": 2_428_000_000.0, "at 1970": 3.0}


@contextmanager
def ledger_of(directory: Path, epoch: int) -> Iterator[Ledger]:
    made = Ledger(directory, site="site", epoch=epoch, boot_id="boot")
    yield made
    made.close()


def epoch_of(plane: ControlPlane) -> int:
    return plane.services.hosts.get(T4_HOST).host.epoch


def token(epoch: int) -> FencingToken:
    return FencingToken(site="site", epoch=epoch, operation="operation", attempt=1)


@pytest.fixture
def plane(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, backend: str
) -> Iterator[ControlPlane]:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "database_key").write_bytes(KEY)
    url = f"sqlite:///{tmp_path / DATABASE}"
    if backend == "postgresql":
        cluster: Cluster = request.getfixturevalue("postgres")
        url = cluster.database()
        monkeypatch.setenv("VGPUCTL_DATABASE_URL", url)
    with plane_with(tmp_path, T4_HOST, url=url) as made:
        yield made


@pytest.mark.fault("F99")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_restore_under_any_clock_is_obeyed_and_what_was_lost_is_not(
    plane: ControlPlane, tmp_path: Path, clock: str
) -> None:
    """The lost database had counted on after the backup, and its agents have seen that."""
    machine = plane.machine(T4_HOST)
    with ledger_of(tmp_path / "agent", 9) as ledger:
        machine.ledger.epoch = ledger.epoch()
        settle_restored(tmp_path, CLOCKS[clock])
        plane.observer.observe(T4_HOST)
        ledger.admit(token(epoch_of(plane)))
        with pytest.raises(Denied) as refused:
            ledger.admit(token(9))
        assert refused.value.code == "agent.stale_token"


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_epoch_that_no_agent_takes_is_healed_by_settling_again(plane: ControlPlane, tmp_path: Path) -> None:
    """An older version wrote it from a clock that was years ahead."""
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), epoch=850_317_604))
    with ledger_of(tmp_path / "agent", 1) as ledger:
        plane.machine(T4_HOST).ledger.epoch = ledger.epoch()
        with pytest.raises(Denied):
            ledger.admit(token(epoch_of(plane)))
        settle_restored(tmp_path, CLOCKS["right"])
        plane.observer.observe(T4_HOST)
        ledger.admit(token(epoch_of(plane)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operation_that_comes_before_the_first_look_asks_its_host_first(plane: ControlPlane, tmp_path: Path) -> None:
    machine = plane.machine(T4_HOST)
    machine.ledger.epoch = 40
    settle_restored(tmp_path, CLOCKS["right"])
    created = plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert plane.services.operations.get(str(created.operation)).state == "done"
    assert epoch_of(plane) == 41
