# SPDX-License-Identifier: Apache-2.0
"""Several real servers of one database, each with a state directory of its own, and simulated hosts in a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.core.units import GIB
from tests.fakes.certificate import over_tls
from tests.fakes.forked import Forked, Program, ran
from tests.fakes.running import client_of, hosts_of

FLEET = """\
groups:
  - {{name: l40s, count: {hosts}, gpu_model: L40S, gpus_per_host: 2, vcpus: 64, memory_gib: 256}}
"""
LIMIT_S = 240.0
SERVE = "orchestrator.server.serve"


def wish(name: str, image: str = "demo") -> dict[str, Any]:
    return {
        "name": name, "profile": "NVIDIA L40S-12Q", "image": image,
        "vcpus": 1, "memory_mib": 512, "disk_bytes": GIB,
    }  # fmt: skip


def until(reached: Callable[[], object], what: str = "it", limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.1)


@dataclass
class Server:
    """One controller. ``program``: the module that it runs, in a process that loads it by itself where it is not the
    shipped one; ``tree``: of another version of it than this one."""

    directory: Path
    hosts: Path
    program: str = SERVE
    process: Program | None = None
    environment: dict[str, str] = field(default_factory=dict)
    tree: Path | None = None

    def configure(self, database_url: str, **more: object) -> None:
        """It listens on loopback over TLS."""
        self.directory.mkdir(parents=True)
        tls = over_tls(self.directory)
        settings = {
            "database_url": database_url, "listen": tls.listen, "tls_cert": str(tls.certificate),
            "tls_key": str(tls.key), "refresh_seconds": 1.0, **more,
        }  # fmt: skip
        (self.directory / "config.yaml").write_text(yaml.safe_dump(settings))

    def run(self, *words: str, said: str = "", module: str = "orchestrator.cli.main") -> tuple[int, str, str]:
        """A command beside it: exit code, what it wrote, what it complained of."""
        if self.tree is None:
            return ran(module, words, self.variables(), LIMIT_S, said)
        done = subprocess.run(
            [sys.executable, "-m", module, *words], env=self.variables(), cwd=self.tree, input=said,
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def start(self) -> None:
        words, log = ("--simulate", str(self.hosts)), self.directory / "serve.log"
        if self.program == SERVE and self.tree is None:
            self.process = Forked(SERVE, words, self.variables(), log, log)
            return
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.program, *words],
                env=self.variables(), cwd=self.tree, stdout=file, stderr=file,
            )  # fmt: skip

    def ready(self) -> None:
        until(self.answers, f"start of {self.directory.name}: {self.log()[-2000:]}")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        return connect_running(self.directory) is not None

    def log(self) -> str:
        return (self.directory / "serve.log").read_text(errors="replace")

    def client(self) -> Client:
        """With a connection of its own."""
        return client_of(self.directory)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        """In good order: what runs ends."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        assert self.process.wait(LIMIT_S) == 0, self.log()[-2000:]

    def kill(self) -> None:
        """Also while it is stopped."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def variables(self) -> dict[str, str]:
        return {**os.environ, "VGPUCTL_STATE": str(self.directory), **self.environment}


def simulated_fleet(directory: Path, hosts: int, *, boots_s: float = 0.0) -> AbstractContextManager[Path]:
    """The socket of a process that simulates so many hosts."""
    return simulated_hosts(directory, FLEET.format(hosts=hosts), boots_s=boots_s)


def simulated_hosts(directory: Path, fleet: str, *, boots_s: float = 0.0) -> AbstractContextManager[Path]:
    """The same of a fleet's hosts."""
    (directory / "fleet.yaml").write_text(fleet)
    return hosts_of(directory / "fleet.yaml", directory, boots_s=boots_s)


def join_one(server: Server, first: Server) -> None:
    """Start it, as the ``first`` or as one that this has invited."""
    if server is not first:
        code, token, complaint = first.run("server", "invite")
        assert code == 0, complaint
        code, _, complaint = server.run("server", "join", said=token)
        assert code == 0, f"{complaint}\n{first.log()[-2000:]}"
    server.start()
    if server is first:
        server.ready()


@contextmanager
def joined(
    directory: Path, database_url: str, hosts: Path, names: Sequence[str], **more: Any
) -> Iterator[list[Server]]:
    """The first makes the database; the others join it, as people do. All answer."""
    program, settings = more.pop("program", SERVE), more
    servers = [Server(directory / name, hosts, program) for name in names]
    for server in servers:
        server.configure(database_url, **settings)
    try:
        for server in servers:
            join_one(server, servers[0])
        for server in servers:
            server.ready()
        yield servers
    finally:
        for server in servers:
            server.kill()
