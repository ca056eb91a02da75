# SPDX-License-Identifier: Apache-2.0
"""``--watch`` at a server: nothing is asked while nothing happens, and what happens is shown at once."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from orchestrator.client.client import Client
from orchestrator.client.http import UnixHttp
from orchestrator.client.location import SOCKET_NAME
from tests.fakes.running import client_of
from tests.fakes.simulated import serving, serving_fleet, wish
from tests.fakes.typed import COMMAND

FLEET = """\
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""
LIMIT_S = 60.0
IDLE_S = 4.0
SOON_S = 1.0
PIPE_CLOSED = 141
INTERRUPTED = 130
_ANSWERED = re.compile(r'^vgpuctl_http_request_seconds_count\{route="([^"]+)",.*\} ([0-9]+)', re.MULTILINE)


class Watched:
    """A command that runs, and what it has printed."""

    def __init__(self, state: Path, words: str, token: str | None = None) -> None:
        environment = {"VGPUCTL_STATE": str(state), "PATH": os.environ["PATH"], "HOME": str(state)}
        environment |= {} if token is None else {"VGPUCTL_TOKEN": token}
        self.process = subprocess.Popen(
            [str(COMMAND), *words.split(), "--watch"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self._out: IO[bytes] = self.process.stdout
        self.text = ""

    def until(self, shown: str) -> float:
        """When that was printed, by the monotonic clock."""
        end = time.monotonic() + LIMIT_S
        while re.search(shown, self.text) is None:
            assert time.monotonic() < end, self.text
            if select.select([self._out], [], [], 1.0)[0]:
                part = os.read(self._out.fileno(), 65536)
                assert part, self.text
                self.text += part.decode()
        return time.monotonic()

    def close(self) -> None:
        """Nobody reads it any more."""
        self._out.close()


@contextmanager
def watched(state: Path, words: str, token: str | None = None) -> Iterator[Watched]:
    running = Watched(state, words, token)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with serving_fleet(tmp_path, FLEET):
        yield tmp_path / "state"


def answered(state: Path) -> dict[str, int]:
    """How often, by route."""
    http, counts = UnixHttp(state / SOCKET_NAME, LIMIT_S), dict[str, int]()
    for route, number in _ANSWERED.findall(http.request("GET", "/metrics", None).body.decode()):
        counts[route] = counts.get(route, 0) + int(number)
    http.close()
    counts.pop("GET /metrics", None)
    return counts


def created(client: Client, name: str) -> None:
    client.wait(client.create_vm(wish(name, "GRID T4-2Q")))


IDLE = {
    "list-vms --all-tenants": "running", "gpu list": "T4", "gpu map": "train", "gpu racks": "RACK",
    "operation list": "create_vm", "host list": "ready", "show-vm train": "running",
}  # fmt: skip


def test_who_watches_asks_nothing_while_nothing_happens(state: Path) -> None:
    client = client_of(state)
    created(client, "train")
    with ExitStack() as stack:
        for words, shown in IDLE.items():
            stack.enter_context(watched(state, words)).until(shown)
        time.sleep(1)  # the last one reads what the stream's beginning may have missed
        before = answered(state)
        time.sleep(IDLE_S)
        assert answered(state) == before


def test_a_change_is_shown_within_a_second_and_many_changes_are_read_together(state: Path) -> None:
    client = client_of(state)
    created(client, "train")
    with watched(state, "list-vms --all-tenants -o json") as watching:
        watching.until("running")
        lates = []
        for turn in range(3):
            client.change_vm("train", "default", {"labels": {"turn": f"t{turn}"}})
            began = time.monotonic()
            lates.append(watching.until(f"t{turn}") - began)
        assert min(lates) < SOON_S
        before = answered(state)["GET /v1/vms"]
        for turn in range(40):
            client.change_vm("train", "default", {"labels": {"turn": f"many{turn}"}})
        watching.until("many39")
        assert answered(state)["GET /v1/vms"] - before < 20


def test_what_is_asked_of_one_vm_is_not_read_anew_for_another(state: Path) -> None:
    client = client_of(state)
    created(client, "train")
    with watched(state, "show-vm train -o json") as watching:
        watching.until("running")
        before = answered(state)["GET /v1/vms/{name}"]
        created(client, "other")
        client.change_vm("train", "default", {"labels": {"a": "seen"}})
        watching.until("seen")
        assert answered(state)["GET /v1/vms/{name}"] - before <= 3  # the change, and twice what is read together


def test_a_tenant_is_shown_its_own_alone(state: Path) -> None:
    client = client_of(state)
    client.create_tenant("red")
    client.create_tenant("blue")
    token = client.create_token({"name": "t", "tenant": "red", "role": "tenant-user"})["token"]
    with watched(state, "list-vms -o json", token) as watching:
        watching.until(r"\[\]")
        before = answered(state)["GET /v1/vms"]
        client.wait(client.create_vm(wish("theirs", "GRID T4-2Q", tenant="blue")))
        time.sleep(SOON_S)
        assert answered(state)["GET /v1/vms"] == before
        client.wait(client.create_vm(wish("own", "GRID T4-2Q", tenant="red")))
        watching.until("running")
    assert "theirs" not in watching.text


def test_an_operation_is_shown_until_it_ends(state: Path) -> None:
    client = client_of(state)
    started = client.create_vm(wish("train", "GRID T4-2Q"))
    with watched(state, f"operation show {started['operation']} -o json") as watching:
        out, _ = watching.process.communicate(timeout=LIMIT_S)
    states = [json.loads(line)["state"] for line in out.splitlines()]
    assert (states[-1], watching.process.returncode) == ("done", 0)


def test_a_server_that_is_started_again_is_survived_and_nothing_is_missed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        state = tmp_path / "state"
        with serving_fleet(tmp_path, FLEET) as client:
            created(client, "train")
            watching = stack.enter_context(watched(state, "list-vms --all-tenants -o json"))
            watching.until("running")
        time.sleep(2 * SOON_S)
        assert watching.process.poll() is None
        with serving(state, tmp_path / "fleet.yaml") as client:
            client.change_vm("train", "default", {"labels": {"a": "later"}})
            watching.until("later")


def test_an_idle_watch_ends_when_its_reader_has_gone(state: Path) -> None:
    with watched(state, "list-vms --all-tenants") as watching:
        watching.until("no VMs")
        watching.close()
        assert watching.process.wait(LIMIT_S) == PIPE_CLOSED


def test_ctrl_c_ends_it_with_nothing_said(state: Path) -> None:
    with watched(state, "gpu list") as watching:
        watching.until("T4")
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(LIMIT_S) == INTERRUPTED
        assert watching.process.stderr is not None
        assert watching.process.stderr.read() == b""
