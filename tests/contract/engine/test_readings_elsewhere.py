# SPDX-License-Identifier: Apache-2.0
"""What one controller hears of a host, everybody can ask any controller for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from tests.contract.engine.test_several_controllers import ended
from tests.fakes.several import Server, join_one, simulated_fleet, until, wish
from tests.postgres.cluster import Cluster


@pytest.fixture
def servers(tmp_path: Path, postgres: Cluster) -> Iterator[tuple[Server, Server]]:
    """The first hears all hosts; the second listens to none."""
    with simulated_fleet(tmp_path, 2) as hosts:
        hears, deaf = Server(tmp_path / "hears", hosts), Server(tmp_path / "deaf", hosts)
        try:
            database = postgres.database()
            for server, watched in ((hears, 1024), (deaf, 0)):
                server.configure(database, hosts_watched=watched)
                join_one(server, hears)
            deaf.ready()
            yield hears, deaf
        finally:
            for server in (hears, deaf):
                server.kill()


def kinds(client: Client, vm: str) -> set[str]:
    return {reading["kind"] for reading in client.vm_readings(vm, "default")["readings"]}


def all_with_history(client: Client, host: str) -> bool:
    readings = client.host_readings(host, history=True)["readings"]
    return bool(readings) and all(reading["history"] and reading["history"]["ages_s"] for reading in readings)


def activities(client: Client) -> list[Json]:
    return [*client.host_activities(), *client.gpu_activities(), *client.vm_activities()]


def test_a_controller_that_does_not_hear_a_host_asks_one_that_does(servers: tuple[Server, Server]) -> None:
    hears, deaf = servers
    with hears.client() as there, deaf.client() as here:
        ended(there, str(there.create_vm(wish("train"))["operation"]))
        host = str(there.vm("train", "default")["host"])
        until(lambda: kinds(there, "train") == {"vm", "vgpu"}, "a reading of the VM")
        # Another controller that answers late, as on a busy machine, is left out for a while.
        until(lambda: kinds(here, "train") == {"vm", "vgpu"}, "a reading of the VM at the other one")
        until(lambda: here.host_readings(host)["age_s"] is not None, "a reading of the host there")
        until(lambda: all_with_history(here, host), "the history of all")
        assert len(activities(here)) == 2 + 4 + 1
        until(lambda: all(row["age_s"] is not None for row in activities(here)), "readings in all rows")
        until(lambda: "silent" not in deaf.run("top", "hosts")[1], "a table without silent hosts")
        hears.kill()
        assert here.host_readings(host)["age_s"] is None, "who is gone is asked for seconds at most"
        code, shown, complaint = deaf.run("top", "hosts")
        assert (code, shown.count("silent"), complaint) == (0, 2, "")
