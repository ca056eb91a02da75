# SPDX-License-Identifier: Apache-2.0
"""A served control plane with a host and a VM, asked in ways that must change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pysqlite3 import dbapi2 as sqlite

from orchestrator.client.location import SOCKET_NAME
from tests.contract.api.conftest import Reply, Send, exchange

GIB = 1024**3
VM: dict[str, Any] = {
    "name": "good", "profile": "GRID T4-2Q", "image": "guest", "vcpus": 1, "memory_mib": 256, "disk_bytes": GIB,
}  # fmt: skip
HOST: dict[str, Any] = {
    "name": "new", "address": "l40s.test", "provisioning_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "fingerprint": "SHA256:l40s.test",
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    state: Path
    send: Send

    def rows(self, *, of_audit: bool = False) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every table."""
        with closing(sqlite.connect(f"file:{self.state / 'vgpuctl.sqlite'}?mode=ro", uri=True)) as database:
            names = [str(name) for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
            wanted = [name for name in names if name.startswith("audit") == of_audit]
            return {name: sorted(database.execute(f'select * from "{name}"'), key=repr) for name in wanted}

    def kept(self) -> tuple[object, list[str]]:
        """What a refused request may not change: the database without its audit, and the files."""
        files = sorted(str(path) for path in (self.state / "images").iterdir())
        return self.rows(), files

    def audited(self) -> list[tuple[object, ...]]:
        return self.rows(of_audit=True)["audit"]

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever is done in it."""
        before = self.kept()
        yield
        assert self.kept() == before

    def refused(self, method: str, target: str, body: object = None, *, code: str, status: int = 400) -> str:
        """The sentence and the hint; nothing changed, one line, and the refusal of a change, not of a plan, is on
        record."""
        seen, before = len(self.audited()), self.kept()
        reply = self.send(method, target, body)
        assert self.kept() == before, f"{method} {target} {body!a}: {reply}"
        problem = problem_of(reply)
        assert (reply.status, problem["code"]) == (status, code), f"{method} {target} {body!a}: {reply}"
        recorded = method != "GET" and not target.endswith("/plan")
        records = self.audited()
        assert len(records) == seen + recorded
        if recorded:
            assert f"refused: {code}" in [str(value) for value in max(records, key=lambda row: int(str(row[0])))]
        return f"{problem['detail']} {problem['hint'] or ''}"

    def raw(self, head: str, body: bytes = b"") -> Reply:
        """A request as it stands; its lines end with newlines here."""
        lines = [*head.strip().split("\n"), "Connection: close", "", ""]
        answer = exchange(self.state / SOCKET_NAME, "\r\n".join(lines).encode("latin-1") + body)
        top, _, content = answer.partition(b"\r\n\r\n")
        first, *rest = top.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return Reply(int(first.split()[1]), headers, content)


def code_for(value: object, code: str) -> str:
    """The code that refuses this value: with NUL or half a character it comes no further than the border."""
    unstorable = isinstance(value, str) and any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    return "request.text_invalid" if unstorable else code


def problem_of(reply: Reply) -> dict[str, Any]:
    """An error as all errors are: a problem, one printable line, nothing of the program in it."""
    assert reply.headers["content-type"] == "application/problem+json", reply
    assert b"Traceback" not in reply.body
    found: dict[str, Any] = json.loads(reply.body)
    assert found["detail"].isprintable()
    assert found["detail"].isascii()
    assert len(found["detail"]) < 300
    assert found["status"] == reply.status
    return found


def command(state: Path, *words: str, shell: str = '"$@"', **variables: str) -> subprocess.CompletedProcess[bytes]:
    """The command line as a process of its own, started by a shell that may redirect."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "VGPUCTL_STATE": str(state),
                   "HOME": str(state), **variables}  # fmt: skip
    return subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-m", "orchestrator.cli.main", *words],
        env=environment, capture_output=True, timeout=120,
    )  # fmt: skip
