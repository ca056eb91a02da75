# SPDX-License-Identifier: Apache-2.0
"""One server in front of simulated hosts: server, hosts and database each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.units import GIB
from tests.fakes.running import client_of

FLEET: Final = """\
groups:
  - {{name: l40s, count: {hosts}, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024}}
"""
PROFILE: Final = "NVIDIA L40S-12Q"
START_S: Final = 900
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def wish(name: str) -> Json:
    """A VM; its guest is started, as people want it."""
    return {"name": name, "profile": PROFILE, "image": "demo", "vcpus": 2, "memory_mib": 1024, "disk_bytes": GIB}


@dataclass
class Site:
    """``hosts``: the process that simulates them. ``database_url``: of a database server; None: SQLite."""

    directory: Path
    hosts: subprocess.Popen[bytes]
    database_url: str | None
    server: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.directory / "s"

    def start(self) -> float:
        """Seconds until the server has planned a VM."""
        self.state.mkdir(exist_ok=True)
        environment = {
            **os.environ, "VGPUCTL_STATE": str(self.state), "VGPUCTL_DATABASE_URL": self.database_url or "",
        }  # fmt: skip
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its compiled form beside it
        words = ["-m", "orchestrator.server.serve", "--simulate", str(self.directory / "hosts.sock")]
        began = time.monotonic()
        with (self.directory / "serve.log").open("ab") as log:
            self.server = subprocess.Popen([sys.executable, *words], env=environment, stdout=log, stderr=log)
        while connect_running(self.state) is None:
            assert self.server.poll() is None, (self.directory / "serve.log").read_text()
            assert time.monotonic() - began < START_S, "the server did not answer"
            time.sleep(0.02)
        self.client().plan_vm(wish("first"))
        return time.monotonic() - began

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=120)

    def client(self) -> Client:
        """With a connection of its own."""
        return client_of(self.state)

    def run(self, *words: str) -> None:
        """A command, as people type it."""
        environment = {**os.environ, "VGPUCTL_STATE": str(self.state)}
        command = [sys.executable, "-m", "orchestrator.cli.main", *words]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)

    def core_seconds(self) -> float:
        """Processor time that the server has used."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    @contextmanager
    def hosts_silent(self) -> Iterator[None]:
        """No host answers meanwhile: operations and looks that have begun wait."""
        self.hosts.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.hosts.send_signal(signal.SIGCONT)

    @property
    def _pid(self) -> int:
        assert self.server is not None
        return self.server.pid


@contextmanager
def site(
    directory: Path, hosts: int, database_url: str | None, *hosts_options: str, fleet: str = FLEET
) -> Iterator[Site]:
    """With its hosts (``hosts_options``: of the process that simulates them; ``fleet``: the file that describes them,
    in which ``hosts`` is how many there are); the server is not started yet."""
    file = directory / "fleet.yaml"
    file.write_text(fleet.format(hosts=hosts))
    words = ["-m", "orchestrator.sim.hosts_process", str(file), str(directory / "hosts.sock"), str(directory / "h")]
    words += hosts_options
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as simulated:
        assert simulated.stdout is not None
        assert simulated.stdout.readline() == b"{}\n", "the hosts did not start"
        made = Site(directory, simulated, database_url)
        try:
            yield made
        finally:
            made.stop()
