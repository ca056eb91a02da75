# SPDX-License-Identifier: Apache-2.0
"""A database and a host, and processes of controllers on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.core.operation import FINISHED, Operation
from orchestrator.core.units import GIB
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, control_plane
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.forked import Forked, Program
from tests.fakes.running import client_of
from tests.fakes.several import until
from tests.fakes.shared_hosts import SharedHosts

LIMIT_S = 240.0
ROOT = Path(__file__).parents[3]
PROGRAMS = "tests.contract.engine"
WISH = {"profile": "GRID T4-2Q", "image": "guest", "vcpus": 1, "memory_mib": 256, "disk_bytes": GIB}


class Site:
    """A database, a host, and the controllers that were started on them."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.hosts = SharedHosts(directory / "hosts")
        self.hosts.put({f"{T4_HOST}.test": FakeMachine(machine_id="m1", gpus=[t4()])})
        self.plane: ControlPlane = control_plane(directory, hosts=self.hosts, url=url)
        self.started: list[Program] = []
        self.plane.add_host(T4_HOST)

    def controller(self, name: str, *act: str, url: str | None = None) -> Program:
        """``url``: of its own way to the database."""
        return self._forked("controller", name, name, url or self.url, str(self.directory), *act)

    def server(self, name: str, *act: str, program: Path = ROOT) -> Program:
        """``program``: the tree it runs from."""
        state = self.state(name)
        (state / "secrets").mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / "secrets" / "database_key").write_text(KEY.decode())
        url = "-" if self.url.startswith("sqlite") else self.url
        words = (str(state), url, str(self.directory / "hosts"), *act)
        if program == ROOT:
            return self._forked("served", name, *words)
        self.started.append(
            subprocess.Popen(
                [sys.executable, "-m", f"{PROGRAMS}.served", *words],
                cwd=program, env={**os.environ, "PYTHONPATH": str(program)},
            )
        )  # fmt: skip
        return self.started[-1]

    def _forked(self, program: str, name: str, *words: str) -> Program:
        log = self.directory / f"{name}.log"
        self.started.append(Forked(f"{PROGRAMS}.{program}", words, os.environ, log, log))
        return self.started[-1]

    def state(self, name: str) -> Path:
        """The state directory of a server."""
        return self.directory / name

    def reached(self, name: str) -> None:
        until((self.directory / f"{name}.reached").exists)

    def rearm(self) -> None:
        """The next of the servers that is to act at an effect does so, though another one has."""
        (self.directory / "hosts.reached").unlink(missing_ok=True)

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


def created(site: Site, server: str, name: str = "train") -> str:
    """The operation that makes a VM, asked for at that server as users do."""
    until(lambda: connect_running(site.state(server)) is not None)
    with client_of(site.state(server)) as client:
        return str(client.create_vm({**WISH, "name": name})["operation"])


def one_of_each(machine: FakeMachine) -> None:
    """Nothing was made twice and nothing is missing."""
    assert (len(machine.mdevs), len(machine.domains), len(machine.volumes)) == (1, 1, 1)
    assert [running for _, running in machine.domains.values()] == [True]
