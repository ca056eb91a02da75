# SPDX-License-Identifier: Apache-2.0
"""The older version's database, served by a server process as it is today."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.server.bootstrap import IN_MEMORY_SITE
from orchestrator.sim.hosts_link import HostsLink
from tests.fakes.control_plane import KEY
from tests.fakes.fake_host import FakeHosts
from tests.fakes.several import LIMIT_S, Server, until
from tests.fakes.world import host_info
from tests.landed.hosts_server import HostsServer
from tests.landed.landed import landed_database, landed_hosts

SITE = f"{IN_MEMORY_SITE}{0:012}"
RUNNING = {"kept", "typed", "byhand"}
BEGUN = "32b736a1-2bed-5f62-8131-c3dc9a2a33c7"
ENDED = {"done", "undone", "stuck"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[HostsServer]:
    with closing(HostsServer(tmp_path / "hosts.sock", landed_hosts(SITE))) as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, hosts: HostsServer) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path / 'landed.sqlite'}"
    landed_database(url, SITE)
    made = Server(tmp_path / "state", tmp_path / "hosts.sock")
    made.configure(url)
    secrets = made.directory / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "database_key").write_bytes(KEY)
    (secrets / "database_key").chmod(0o600)
    made.directory.chmod(0o700)
    made.start()
    made.ready()
    yield made
    made.kill()


def domains(hosts: FakeHosts) -> dict[str, object]:
    return {uuid: one for machine in hosts.machines.values() for uuid, one in machine.domains.items()}


def ended(client: Client) -> bool:
    return all(one["state"] in ENDED for one in client.operations(active=True))


def states(client: Client) -> dict[str, str]:
    return {vm["name"]: vm["state"] for vm in client.vms()}


def test_vms_of_an_older_version_run_on_and_what_was_in_mid_step_ends_once(hosts: HostsServer, server: Server) -> None:
    client = server.client()
    ran = {vm["id"] for vm in client.vms() if vm["name"] in RUNNING}
    assert len(ran) == len(RUNNING)
    until(lambda: ended(client), f"the end of what was under way: {server.log()[-2000:]}", LIMIT_S)
    assert states(client) == {
        **dict.fromkeys(("begun", "leased", "urgent", *RUNNING), "running"),
        **dict.fromkeys(("batch", "resting"), "stopped"),
        "broken": "stuck",
    }
    as_landed = domains(landed_hosts(SITE))
    assert {vm: domains(hosts.hosts)[vm] for vm in ran} == {vm: as_landed[vm] for vm in ran}
    once = {action: count for (vm, action), count in hosts.done.items() if vm == BEGUN}
    assert once["StartDomain"] == 1
    assert set(once.values()) == {1}
    server.stop()
    server.start()
    server.ready()
    client = server.client()
    assert ended(client)
    assert {action: count for (vm, action), count in hosts.done.items() if vm == BEGUN} == once
    client.wait(client.delete_vm("begun", "default"), timeout_s=LIMIT_S)
    assert BEGUN not in domains(hosts.hosts)


def test_hosts_without_readings_are_asked_for_them_once(hosts: HostsServer, tmp_path: Path) -> None:
    link = HostsLink(tmp_path / "hosts.sock", site=SITE, period_s=0.001)
    address = next(iter(hosts.hosts.machines))
    watching = threading.Thread(target=lambda: list(link.watch(replace(host_info("a").host, address=address))))
    watching.start()
    until(lambda: hosts.refused["readings"] > 0)
    watching.join(0.2)
    assert watching.is_alive()
    link.close()
    watching.join(LIMIT_S)
    assert hosts.refused == {"readings": 1}
