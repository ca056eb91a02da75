# SPDX-License-Identifier: Apache-2.0
"""Lab hosts, brought up when first asked for, ended only if they were not running before."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.enrolled import Enrolled

PAIR = ("t4", "l40s")
"""Two hosts that reach each other."""


def lab(*args: str) -> str:
    done = subprocess.run([sys.executable, "-m", "lab", *args], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, f"lab {' '.join(args)}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class LabHost:
    """How to reach one lab host, as ``lab status -o json`` tells it."""

    name: str
    address: str
    port: int
    user: str
    key_file: str
    host_key_fingerprint: str
    known_host_line: str
    state: str
    console_log: str

    def run(self, command: str, limit_s: float = 300) -> str:
        """Output of a shell command that must succeed on the host."""
        done = subprocess.run(
            [sys.executable, "-m", "lab", "ssh", self.name, command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def send(self, file: Path, path: str) -> None:
        """Copies a local file to the host."""
        with file.open("rb") as content:
            done = subprocess.run(
                [sys.executable, "-m", "lab", "ssh", self.name, f"cat > {path}"],
                stdin=content, capture_output=True, timeout=300,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr


def listed() -> dict[str, LabHost]:
    return {row["name"]: LabHost(**row) for row in json.loads(lab("status", "-o", "json"))}


def of_scenario(name: str) -> Iterator[LabHost]:
    before = set(listed())
    lab("up", "--scenario", f"lab/scenarios/{name}.yaml")
    try:
        yield listed()[name]
    finally:
        if name not in before:
            lab("down", name)


@pytest.fixture(scope="module")
def pair() -> Iterator[dict[str, LabHost]]:
    with contextmanager(of_scenario)(PAIR[0]) as one, contextmanager(of_scenario)(PAIR[1]) as other:
        yield {host.name: host for host in (one, other)}


@pytest.fixture(scope="session")
def t4() -> Iterator[LabHost]:
    yield from of_scenario("t4")


@pytest.fixture(scope="session")
def l40s() -> Iterator[LabHost]:
    yield from of_scenario("l40s")


@pytest.fixture(scope="session")
def a40() -> Iterator[LabHost]:
    yield from of_scenario("a40")


@pytest.fixture(scope="module")
def a100() -> Iterator[LabHost]:
    yield from of_scenario("a100")


@pytest.fixture(scope="module")
def h100_hgx() -> Iterator[LabHost]:
    yield from of_scenario("h100-hgx")


@pytest.fixture(scope="module")
def rtx_pro_6000() -> Iterator[LabHost]:
    yield from of_scenario("rtx-pro-6000")


@pytest.fixture(scope="module")
def mixed() -> Iterator[LabHost]:
    yield from of_scenario("mixed")


@pytest.fixture(scope="module")
def bare() -> Iterator[LabHost]:
    yield from of_scenario("bare")


@pytest.fixture(scope="module")
def new() -> Iterator[LabHost]:
    yield from of_scenario("new")


@pytest.fixture(scope="session", params=["t4", "l40s", pytest.param("a40", marks=pytest.mark.soak)])
def enrolment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    """A control plane of its own that manages one GPU of the host; enrolling is a minute for an emulated host."""
    from tests.lab.enrolled import NAMED, enrol

    kind = NAMED[request.param]
    with enrol(kind, request.getfixturevalue(kind.scenario), tmp_path_factory.mktemp("state")) as one:
        yield one


@pytest.fixture
def enrolled(enrolment: Enrolled) -> Iterator[Enrolled]:
    """What a test that failed left behind is gone before the next one."""
    yield enrolment
    enrolment.clear()
