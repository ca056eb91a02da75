# SPDX-License-Identifier: Apache-2.0
"""The site that is struck: PostgreSQL, servers with a relay on each of their ways, hosts in a process."""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from orchestrator.client.autostart import connect_running
from tests.chaos.hosts_relay import HostsRelay
from tests.fakes.relay import Relay
from tests.fakes.several import Server, join_one, simulated_fleet
from tests.postgres.cluster import Cluster, cluster

HOSTS = ("l40s-0", "l40s-1", "l40s-2")
PROGRAM = "tests.chaos.server"
_PORT = ".s.PGSQL.5432"


@dataclass
class Struck:
    """A server and what stands around it."""

    server: Server
    database: Relay
    hosts: HostsRelay
    ahead: Path
    _starting: threading.Lock = field(default_factory=threading.Lock)

    answered: bool = False
    """Since it was started last."""

    def why_silent(self) -> str:
        """What may keep it from answering in time, by what was done to it."""
        process = self.server.process
        if process is None or process.poll() is not None:
            return "was killed"
        try:
            state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "was killed"
        if state == "T":
            return "was stopped"
        return "was late" if self.answered else "was starting"

    def lives(self) -> bool:
        return self.server.process is not None and self.server.process.poll() is None

    def mend(self) -> None:
        """Whatever was done to it is over; it may still have to get ready."""
        self.database.delay_s, self.database.lost, self.database.on_answer = 0.0, False, None
        self.hosts.down.clear()
        self.hosts.lose = 0
        self.ahead.write_text("0")
        if self.lives():
            self.server.signal(signal.SIGCONT)

    def up(self) -> bool:
        """Whether it answers; one that has ended, as its service manager would, is started again."""
        self.revive()
        return connect_running(self.server.directory) is not None

    def revive(self) -> None:
        with self._starting:
            if not self.lives():
                self.answered = False
                self.server.start()


@dataclass
class Site:
    postgres: Cluster
    struck: list[Struck]


def _to(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    return made


def _listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen(64)
    return made


@contextmanager
def site(servers: int) -> Iterator[Site]:
    """All servers answer."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as directory, cluster("max_connections=200") as made:
        place, url = Path(directory), made.database()
        database = url.rpartition("/")[2].partition("?")[0]
        with simulated_fleet(place, len(HOSTS), boots_s=0.2) as hosts:
            struck = [_struck(place / name, hosts, made, database) for name in "abc"[:servers]]
            try:
                for one in struck:
                    join_one(one.server, struck[0].server)
                for one in struck:
                    one.server.ready()
                    one.answered = True
                yield Site(made, struck)
            finally:
                for one in struck:
                    one.server.kill()
                    one.database.close()
                    one.hosts.close()


def _struck(directory: Path, hosts: Path, made: Cluster, database: str) -> Struck:
    ways = directory.with_name(f"{directory.name}-ways")
    ways.mkdir()
    relay = Relay(_listening(ways / _PORT), partial(_to, made.sockets / _PORT))
    between = HostsRelay(ways / "hosts.sock", hosts)
    ahead = ways / "ahead"
    ahead.write_text("0")
    server = Server(directory, ways / "hosts.sock", PROGRAM, environment={"CLOCK_AHEAD": str(ahead)})
    server.configure(made.url(database, ways))
    return Struck(server, relay, between, ahead)
