# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.core.operation import FINISHED, Operation
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.shared_hosts import SharedHosts

LIMIT_S = 120.0


class Site:
    """A database, a host, and the controllers that were started on them."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.hosts = SharedHosts(directory / "hosts")
        self.hosts.put({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[t4()])})
        self.plane: ControlPlane = control_plane(directory, hosts=self.hosts, url=url)
        self.started: list[subprocess.Popen[bytes]] = []
        self.plane.add_host(T4_HOST)

    def controller(self, name: str, *act: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.contract.engine.controller", name, self.url, str(self.directory), *act]
        self.started.append(subprocess.Popen(words))
        return self.started[-1]

    def reached(self, name: str) -> None:
        until((self.directory / f"{name}.reached").exists)

    def machine(self) -> FakeMachine:
        return self.hosts.now()[f"{T4_HOST}.test"]

    def finished(self, operation_id: str) -> Operation:
        until(lambda: self.plane.services.operations.get(operation_id).state in FINISHED)
        return self.plane.services.operations.get(operation_id)

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        self.plane.store.close()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def site_on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    with ExitStack() as stack:

        def made(backend: str) -> Site:
            if backend == "sqlite":
                site = Site(tmp_path, f"sqlite:///{tmp_path / 'e.sqlite'}")
            else:
                site = Site(tmp_path, str(request.getfixturevalue("postgres").database()))
            stack.callback(site.close)
            return site

        yield made


def create(site: Site) -> str:
    operation = site.plane.services.vms.create(create_vm()).operation
    assert operation is not None
    return operation


def one_of_each(machine: FakeMachine) -> None:
    """Nothing was made twice and nothing is missing."""
    assert (len(machine.mdevs), len(machine.domains), len(machine.volumes)) == (1, 1, 1)
    assert [running for _, running in machine.domains.values()] == [True]


@pytest.mark.parametrize(
    ("backend", "moment", "effect"),
    [("sqlite", "after", "CreateMdev"), ("postgresql", "before", "DefineDomain")],
)
def test_a_killed_controller_finishes_its_operation_after_its_restart(
    site_on: Callable[[str], Site], backend: str, moment: str, effect: str
) -> None:
    site = site_on(backend)
    operation = create(site)
    killed = site.controller("one", "kill", moment, effect)
    assert killed.wait(LIMIT_S) == -signal.SIGKILL
    assert site.plane.services.operations.get(operation).state == "running"
    site.controller("one")
    assert site.finished(operation).state == "done"
    one_of_each(site.machine())


def test_another_controller_takes_over_from_a_killed_one(site_on: Callable[[str], Site]) -> None:
    site = site_on("postgresql")
    operation = create(site)
    killed = site.controller("one", "kill", "after", "CreateMdev")
    assert killed.wait(LIMIT_S) == -signal.SIGKILL
    site.controller("two")
    ended = site.finished(operation)
    assert (ended.state, ended.attempt) == ("done", 2)
    one_of_each(site.machine())


@pytest.mark.parametrize(("moment", "refusals"), [("before", ["agent.stale_token:CreateVolume"]), ("after", [])])
def test_a_controller_that_was_paused_in_a_step_can_do_nothing_when_it_wakes(
    site_on: Callable[[str], Site], moment: str, refusals: list[str]
) -> None:
    site = site_on("postgresql")
    operation = create(site)
    paused = site.controller("one", "stop", moment, "CreateVolume")
    site.reached("one")
    site.controller("two")
    ended = site.finished(operation)
    assert (ended.state, ended.attempt) == ("done", 2)
    before = site.machine().state()
    paused.send_signal(signal.SIGCONT)
    paused.terminate()
    assert paused.wait(LIMIT_S) == 0  # it has let its run end
    assert site.hosts.refused() == refusals
    assert site.plane.services.operations.get(operation) == ended
    assert site.machine().state() == before
    one_of_each(site.machine())
