# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest

from orchestrator.api.listening import tls_of
from orchestrator.api.process import tell_service_manager
from orchestrator.core.errors import Fatal, InvalidInput
from tests.fakes.certificate import new_certificate
from tests.lab.product import Product

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return new_certificate(tmp_path_factory.mktemp("tls"))


class Served:
    """The real server in the foreground, listening on a port of this machine."""

    def __init__(self, state: Path, pair: tuple[Path, Path], **variables: str) -> None:
        self.product = Product(state)
        self.trust = ssl.create_default_context(cafile=str(pair[0]))
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ear.bind(str(state.parent / "notify"))
        self._ear.settimeout(60)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", "serve", "--listen", "127.0.0.1:0",
             "--tls-cert", pair[0], "--tls-key", pair[1]],
            env={**self.product.environment, "NOTIFY_SOCKET": str(state.parent / "notify"), **variables},
            stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self.heard() == "READY=1"
        assert self.process.stderr is not None
        said = [self.process.stderr.readline(), self.process.stderr.readline()]
        self.port = int(said[1].split(";")[0].rpartition(":")[2])

    def heard(self) -> str:
        return self._ear.recv(100).decode()

    def ask(self, path: str, token: str | None) -> tuple[int, str]:
        connection = HTTPSConnection("127.0.0.1", self.port, context=self.trust, timeout=30)
        connection.request("GET", path, headers={} if token is None else {"authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)
        self._ear.close()
        self.product.close()


@pytest.fixture
def served(tmp_path: Path, pair: tuple[Path, Path]) -> Iterator[Served]:
    made = Served(tmp_path / "state", pair)
    yield made
    made.close()


def test_the_network_is_answered_over_tls_and_to_tokens_alone(served: Served) -> None:
    assert [served.ask(path, None)[0] for path in ("/healthz", "/readyz", "/v1/vms", "/metrics")] == [
        200,
        200,
        401,
        401,
    ]
    assert json.loads(served.ask("/v1/vms", "vgpuctl_wrong")[1])["code"] == "token.refused"
    plain = HTTPConnection("127.0.0.1", served.port, timeout=30)
    plain.request("GET", "/healthz")
    with pytest.raises(OSError):
        plain.getresponse()
    assert served.product.json("list-vms") == []

    served.process.send_signal(signal.SIGTERM)
    assert served.heard() == "STOPPING=1"
    assert served.process.wait(timeout=60) == 0
    assert not (served.product.state / "serve.sock").exists()


def test_the_event_loop_keeps_the_watchdog_quiet_and_its_abort_says_where_it_was(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    served = Served(tmp_path / "state", pair, WATCHDOG_USEC="600000")
    try:
        assert [served.heard() for _ in range(3)] == ["WATCHDOG=1"] * 3
        served.process.send_signal(signal.SIGABRT)  # as systemd does when it hears nothing
        said = served.process.communicate(timeout=60)[1]
        assert served.process.returncode == -signal.SIGABRT
        assert "Fatal Python error: Aborted" in said
        assert "in run_forever" in said
    finally:
        served.close()


def test_a_watchdog_of_another_process_is_not_ours_to_feed(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    served = Served(tmp_path / "state", pair, WATCHDOG_USEC="30000", WATCHDOG_PID="1")
    try:
        served.process.send_signal(signal.SIGTERM)
        assert served.heard() == "STOPPING=1"
    finally:
        served.close()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["--listen", "nonsense"], "serve.listen_invalid"),
        (["--listen", "127.0.0.1:99999"], "serve.listen_invalid"),
        (["--listen", "127.0.0.1:0"], "serve.tls_needed"),
        (
            ["--listen", "127.0.0.1:0", "--tls-cert", "/etc/hostname", "--tls-key", "/etc/hostname"],
            "serve.tls_unusable",
        ),
        (["--listen", "127.0.0.1:0", "--tls-cert", "/missing", "--tls-key", "/missing"], "serve.tls_unusable"),
    ],
)
def test_what_cannot_be_listened_on_is_one_line(tmp_path: Path, given: list[str], code: str) -> None:
    refused = Product(tmp_path / "state").refused(2, "serve", *given).err
    assert f"[{code}]" in refused.splitlines()[0]
    assert not (tmp_path / "state" / "vgpuctl.sqlite").exists()


def test_a_taken_port_is_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    from orchestrator.api.listening import network_socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        tls = tls_of(f"127.0.0.1:{taken.getsockname()[1]}", *pair)
        assert tls is not None
        with pytest.raises(Fatal, match="cannot listen on"), network_socket(tls):
            raise AssertionError("it listens")
    with pytest.raises(InvalidInput):
        tls_of("127.0.0.1:1", pair[1], pair[0])


def test_the_unit_file_is_one_that_systemd_takes() -> None:
    unit = (ROOT / "deploy/vgpuctl.service").read_text()
    here = unit.replace("/usr/local/bin/vgpuctl", sys.executable)
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"vgpuctl-unit-{os.getpid()}.service"
    path.write_text(here)
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60
        )
    finally:
        path.unlink()
    assert (done.returncode, [line for line in done.stderr.splitlines() if path.name in line]) == (0, [])


@pytest.mark.parametrize("where", ["", "relative", "/nowhere/at/all"])
def test_without_a_service_manager_nothing_is_told(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", where)
    tell_service_manager("READY=1")


def test_an_abstract_socket_of_the_service_manager_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"vgpuctl-test-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        tell_service_manager("READY=1")
        assert ear.recv(100) == b"READY=1"


def _other_pair(directory: Path) -> tuple[Path, Path]:
    directory.mkdir()
    return new_certificate(directory)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _open_events(served: Served, token: str) -> HTTPResponse:
    """A connection that never rests: the server says every 15 s that it is alive."""
    opened = HTTPSConnection("127.0.0.1", served.port, context=served.trust, timeout=60)
    opened.request("GET", "/v1/events", headers={"authorization": f"Bearer {token}"})
    answer = opened.getresponse()
    assert answer.status == 200
    return answer


def test_a_certificate_is_read_again_when_its_files_change_and_open_connections_go_on(tmp_path: Path) -> None:
    first, second = _other_pair(tmp_path / "first"), _other_pair(tmp_path / "second")
    served = Served(tmp_path / "state", first)
    said = served.product.json
    try:
        token = said("token", "create", "--role", "read-only", "--tenant", "*")["token"]
        events = _open_events(served, token)
        second[0].replace(first[0])  # and not its key: that pair fits nobody
        _until(lambda: said("server", "status")["certificate_refused"] is not None)
        assert served.ask("/healthz", None)[0] == 200
        assert "does not serve the certificate in its file" in served.product.ok("doctor").err
        second[1].replace(first[1])
        _until(lambda: said("server", "status")["certificate_refused"] is None)
        with pytest.raises(ssl.SSLCertVerificationError):
            served.ask("/healthz", None)
        served.trust = ssl.create_default_context(cafile=str(first[0]))
        assert served.ask("/healthz", None)[0] == 200
        served.product.ok("tenant", "create", "told-since")
        assert any(b"told-since" in line for line in iter(events.readline, b"")), "the connection ended"
        served.process.send_signal(signal.SIGTERM)
        assert served.process.communicate(timeout=60)[1].count("is not served") == 1
    finally:
        served.close()


def test_the_end_of_the_certificate_is_told_to_operators(served: Served) -> None:
    product = served.product
    ends = datetime.fromisoformat(product.json("server", "status")["certificate_ends_at"]).timestamp()
    assert 86_400 < ends - time.time() <= 2 * 86_400 + 60
    assert "certificate ends" in product.ok("server", "status").out
    assert "the server's certificate ends at" in product.ok("doctor").err
    token = product.json("token", "create", "--role", "read-only", "--tenant", "*")["token"]
    lines = served.ask("/metrics", token)[1].splitlines()
    (end,) = (line for line in lines if line.startswith("vgpuctl_certificate_end_timestamp_seconds "))
    assert float(end.split()[1]) == ends
    assert "vgpuctl_certificate_refused 0.0" in lines
    assert json.loads(served.ask("/v1/server", token)[1])["certificate_ends_at"] is None
