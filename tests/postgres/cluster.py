# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of the tests' own: made from the installed programs, on a socket in a directory of its own."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError

_START_S = 60.0
_ACCOUNT = "postgres"
_PROGRAMS = Path("/usr/lib/postgresql")


class Cluster:
    """A running server. Every :meth:`database` is a new, empty one."""

    def __init__(self, sockets: Path, words: Sequence[str | Path]) -> None:
        """``words`` start it."""
        self.sockets = sockets
        self._words = words
        self._numbers = itertools.count()
        self._server = self._started()

    def restart(self) -> None:
        """Every session ends at once."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait()
        self._server = self._started()
        self.wait_until_it_answers()

    def end(self) -> None:
        """Nobody needs the data any more."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        with (self.sockets / "log").open("ab") as log:
            # The signal at our death: a test run that was killed leaves no server behind.
            return subprocess.Popen([*_account(), *self._words], stdout=log, stderr=log, cwd="/")

    def wait_until_it_answers(self) -> None:
        engine = create_engine(self.url("postgres"))
        deadline = time.monotonic() + _START_S
        while True:
            try:
                engine.connect().close()
                break
            except OperationalError:
                assert self._server.poll() is None and time.monotonic() < deadline, (self.sockets / "log").read_text()  # noqa: PT018 - one reason
                time.sleep(0.05)
        engine.dispose()

    def url(self, database: str, sockets: Path | None = None) -> str:
        """For SQLAlchemy. ``sockets``: the directory of a relay's instead."""
        address = URL.create("postgresql+psycopg", username=_ACCOUNT, database=database)
        return address.update_query_dict({"host": str(sockets or self.sockets)}).render_as_string(hide_password=False)

    def database(self, like: str = "template1") -> str:
        """URL of a new database, as a copy of one that nobody has open."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {like}"))
        engine.dispose()
        return self.url(name)


@contextmanager
def cluster(*options: str) -> Iterator[Cluster]:
    """Runs until the end of the block, and not longer than this process. ``options`` as ``name=value``."""
    directory = Path(tempfile.mkdtemp(prefix="vgpuctl-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(directory, _ACCOUNT)
    programs = _programs()
    data = directory / "data"
    subprocess.run(
        [*_account(), programs / "initdb", "-D", data, "-A", "trust", "-U", _ACCOUNT, "-E", "UTF8", "--locale=C", "-N"],
        check=True,
        capture_output=True,
        cwd="/",
    )
    settings = [word for option in (f"unix_socket_directories={directory}", "listen_addresses=", *options)
                for word in ("-c", option)]  # fmt: skip
    made = Cluster(directory, [programs / "postgres", "-D", data, *settings])
    try:
        made.wait_until_it_answers()
        yield made
    finally:
        made.end()
        shutil.rmtree(directory)


def _programs() -> Path:
    """Of the newest version installed."""
    found = sorted(_PROGRAMS.glob("*/bin"), key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    assert found, "PostgreSQL is not installed; packages/dev.txt names the package"
    return found[-1]


def _account() -> Sequence[str | Path]:
    """The server refuses to run as root. Executed in place, so that the process we start is the server itself."""
    setpriv = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() != 0:
        return setpriv
    return [*setpriv, "--reuid", _ACCOUNT, "--regid", _ACCOUNT, "--clear-groups"]
