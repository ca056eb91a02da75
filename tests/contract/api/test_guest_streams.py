# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import termios
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from orchestrator.cli.guest_stream import open_stream
from orchestrator.cli.session import CliSession
from orchestrator.client.location import SOCKET_NAME
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound
from tests.fakes.rfb import Viewer
from tests.fakes.typed import COMMAND
from tests.lab.product import Product


def _session(product: Product) -> CliSession:
    session = CliSession()
    session.context, session.state = None, product.state
    return session


@pytest.fixture(scope="module")
def product(state: Path) -> Product:
    found = Product(state)
    found.ok("create-vm", "talks", "--profile", "t4-small")
    found.ok("create-vm", "silent", "--profile", "t4-small", "--no-start")
    return found


def test_bytes_come_back_as_they_went(product: Product) -> None:
    blob = bytes(range(256)) * 100
    with open_stream(_session(product), "talks", "tcp", "22", tenant="default") as stream:
        stream.send(blob)
        got = b""
        while len(got) < len(blob):
            got += stream.recv(timeout=30, decode=False)
    assert got == blob


def test_the_stream_ends_when_the_guest_hangs_up(product: Product) -> None:
    with open_stream(_session(product), "talks", "console", tenant="default") as stream:
        stream.send(b"\x04")
        assert list(stream) == []


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (("nobody", "console"), NotFound),
        (("silent", "console"), Conflict),
        (("nobody", "display"), NotFound),
        (("silent", "display"), Conflict),
        (("talks", "tcp", "1"), Fatal),
        (("talks", "tcp", "0"), InvalidInput),
        (("talks", "tcp", "65536"), InvalidInput),
        (("talks", "tcp", "ssh"), InvalidInput),
    ],
)
def test_a_stream_that_cannot_be_opened_says_why(
    product: Product, parts: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error), open_stream(_session(product), *parts, tenant="default"):
        raise AssertionError("it opened")


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/vms/nobody/console", {}, 404, "vm.unknown"),
        ("/v1/vms/talks/tcp/0", {}, 400, "port.out_of_range"),
        ("/v1/vms/a%00b/console", {}, 404, "request.no_such_path"),
        ("/v1/vms/talks/console", {"Authorization": "Bearer vgpuctl_wrong"}, 401, "token.refused"),
        ("/v1/vms/talks/console?tenant=other", {}, 404, "vm.unknown"),
    ],
)
def test_a_refused_stream_has_its_answer_and_no_line_in_the_log(
    state: Path, product: Product, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    before = (state / "serve.log").read_bytes()
    with pytest.raises(InvalidStatus) as refused, _connected(state, path, headers):
        raise AssertionError(f"it opened for {product}")
    assert (refused.value.response.status_code, json.loads(refused.value.response.body or b"")["code"]) == (
        status,
        code,
    )
    assert (state / "serve.log").read_bytes() == before


def test_text_frames_and_clients_that_leave_at_once_leave_no_line_in_the_log(state: Path, product: Product) -> None:
    before = (state / "serve.log").read_bytes()
    with _connected(state, "/v1/vms/talks/console", {}) as stream:
        stream.send(f"text for {product}")
        with pytest.raises(ConnectionClosed) as closed:
            _read_on(stream)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1003
    for path in ("console", "tcp/22", "tcp/0"):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(state / SOCKET_NAME))
            one.sendall(
                f"GET /v1/vms/talks/{path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
    assert product.json("list-vms")
    assert (state / "serve.log").read_bytes() == before


def _read_on(stream: ClientConnection) -> None:
    while True:
        stream.recv(timeout=30)


def _connected(state: Path, path: str, headers: dict[str, str]) -> ClientConnection:
    return unix_connect(str(state / SOCKET_NAME), f"ws://localhost{path}", additional_headers=headers)


def test_the_proxy_carries_standard_input_and_output(product: Product) -> None:
    process = subprocess.Popen(
        [str(COMMAND), "vm", "proxy", "talks"], env=product.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"SSH-2.0-test\r\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"SSH-2.0-test\r\n"
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_a_console_says_that_the_vm_has_ended_it(product: Product) -> None:
    with subprocess.Popen(
        [str(COMMAND), "console", "talks"], env=product.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("\x04")
        process.stdin.flush()
        assert "the console of talks has ended: is it running?" in process.stderr.read()
        assert process.wait(timeout=60) == 0


def _viewer(line: str) -> socket.socket:
    program, _, port = line.rstrip().partition(" 127.0.0.1::")
    assert program == "vncviewer", line
    return socket.create_connection(("127.0.0.1", int(port)))


def test_viewers_reach_the_display_at_a_port_one_after_the_other_until_the_command_is_interrupted(
    product: Product,
) -> None:
    with subprocess.Popen(
        [str(COMMAND), "vnc", "talks"], env=product.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(2):
            with _viewer(process.stdout.readline()) as connection:
                viewer = Viewer(connection.sendall, connection.recv)
                viewer.greet()
                assert set(viewer.picture().pixels) == {0x20}
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "the display of talks is closed" in process.stderr.read()
        assert process.wait(timeout=60) == 0


def test_a_port_that_is_taken_and_a_vm_that_is_stopped_are_refused_before_a_viewer_is_named(product: Product) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = product.run("vnc", "talks", "--port", str(taken.getsockname()[1]))
    stopped = product.run("vnc", "silent")
    assert (refused.code, refused.out, "port.in_use" in refused.err) == (5, "", True), refused.err
    assert (stopped.code, stopped.out, "vm.not_running" in stopped.err) == (5, "", True), stopped.err


def _read_until(descriptor: int, wanted: bytes) -> bytes:
    got = b""
    deadline = time.monotonic() + 60
    while wanted not in got:
        assert time.monotonic() < deadline, got
        if select.select([descriptor], [], [], 1)[0]:
            got += os.read(descriptor, 4096)
    return got


def _wait_until_raw(descriptor: int) -> None:
    """Before that the terminal would take an interrupt for itself, and what is typed would be thrown away."""
    deadline = time.monotonic() + 60
    while termios.tcgetattr(descriptor)[3] & termios.ICANON:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_console_is_raw_and_its_key_leaves_it(product: Product) -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [str(COMMAND), "console", "talks"], env=product.environment, stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    _read_until(terminal, b"leaves")
    _wait_until_raw(terminal)
    os.write(terminal, b"\x03hello\r")
    assert b"\x03hello\r" in _read_until(terminal, b"hello\r")
    os.write(terminal, b"\x1d")
    assert process.wait(timeout=60) == 0
    os.close(terminal)


def test_ssh_goes_through_the_proxy_and_keeps_its_own_known_hosts(product: Product, tmp_path: Path) -> None:
    shim = tmp_path / "ssh"
    shim.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shim.chmod(0o755)
    (tmp_path / "key").write_text("private")
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE me\n")
    product.ok("create-vm", "reached", "--profile", "t4-small", "--ssh-key", str(tmp_path / "key.pub"))
    vm_id = product.json("show-vm", "reached")["id"]
    product.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    said = product.ok("ssh", "reached", "--user", "debian", "--", "lspci", "-nn").out.splitlines()
    assert said[-4:] == ["--", "reached.default", "lspci", "-nn"]
    assert any(line.startswith("ProxyCommand=") and "vm proxy reached" in line for line in said)
    assert f'UserKnownHostsFile="{product.state}/ssh/{vm_id}/known_hosts"' in said
    assert (product.state / "ssh" / vm_id / "identity").resolve() == tmp_path / "key"
    assert said[said.index("-l") + 1] == "debian"
    product.ok("delete-vm", "reached")
    assert not (product.state / "ssh" / vm_id).exists()
