# SPDX-License-Identifier: Apache-2.0
"""However many strangers connect and however slowly they speak or read: others are answered, and it ends."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from orchestrator.api.connection_limits import ConnectionLimit, Listener
from tests.hostile.open_server import DESCRIPTORS
from tests.hostile.strangers import STRANGER, Open, open_server, read_to_the_end, trust
from tests.simulated.test_seeds import sampled

CONNECTIONS = 237
COUNTS = {"answers that are not read": 48}
"""Each costs the server an answer of some 100 KB."""
ADDRESSES = tuple(f"127.0.0.{number}" for number in range(10, 18))
JUNK = 45
KEY = RSAKey.generate_key(2048)
HEAD = b"GET /v1/vms HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/vms HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
OPENAPI = b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
SESSION = "/v1/vms/talks/console-sessions/serial?tenant=red"
MAX_LOG_LINES = 50
"""Of one flood, whatever its size; orchestrator/server/telemetry.py bounds lines from one place."""

Speech = Callable[[Open, str], socket.socket]


def _plain(said: bytes) -> Speech:
    return lambda server, address: _said(server.connected(address), said)


def _encrypted(said: bytes) -> Speech:
    return lambda server, address: _said(server.encrypted(address), said)


def _said(one: socket.socket, said: bytes) -> socket.socket:
    if said:
        one.settimeout(1)
        with suppress(OSError):  # closed already, or full of what is not read
            one.sendall(said)
    one.settimeout(60)
    return one


SPEECHES: dict[str, Speech] = {
    "nothing": _plain(b""),
    "nothing after the handshake": _encrypted(b""),
    "half a body": _encrypted(POST + b"Content-Length: 1000\r\n\r\n{"),
    "answers that are not read": _encrypted(OPENAPI * 4),
    "half a hello": _plain(b"\x16\x03\x01\x02\x00\x01"),
    "half a head": _encrypted(HEAD),
    "endless chunks": _encrypted(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"),
    "half a second request": _encrypted(HEAD + b"\r\n" + HEAD),
    "half an upgrade": _encrypted(HEAD.replace(b"vms", b"vms/x/console") + b"Upgrade: websocket\r\n"),
    "no encryption": _plain(HEAD + b"\r\n"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    with open_server(tmp_path_factory.mktemp("open")) as made:
        yield made


def _flood(server: Open, speech: Speech, count: int, opened: ExitStack) -> list[socket.socket]:
    """Those that the server did not send away at once."""
    held = []
    for number in range(count):
        with suppress(OSError):
            held.append(opened.enter_context(speech(server, ADDRESSES[number % len(ADDRESSES)])))
    return held


@sampled("what", tuple(SPEECHES), 4)
def test_strangers_who_keep_the_server_waiting_harm_nobody_and_are_left(server: Open, what: str) -> None:
    before = server.log_lines()
    with ExitStack() as opened:
        held = _flood(server, SPEECHES[what], COUNTS.get(what, CONNECTIONS), opened)
        server.answers_others()
        assert server.descriptors() < DESCRIPTORS * 3 // 4
        for one in held:
            read_to_the_end(one)
    assert server.log_lines() - before < MAX_LOG_LINES
    server.answers_others()


def test_a_byte_now_and_then_is_not_a_request(server: Open) -> None:
    with server.encrypted() as one:
        one.settimeout(0.1)
        for _ in range(600):
            try:
                one.sendall(b"G")
                if not one.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError("it was let speak for ever")


def test_one_address_takes_its_part_and_leaves_the_others_theirs(server: Open) -> None:
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            with suppress(OSError):
                opened.enter_context(server.connected(STRANGER))
        for address in ADDRESSES:
            assert b" 401 " in read_to_the_end(_encrypted(HEAD + b"Connection: close\r\n\r\n")(server, address))


def test_the_owner_is_answered_when_no_descriptor_is_left(tmp_path: Path) -> None:
    with open_server(tmp_path / "open") as server:
        (server.state / "take").touch()
        while not (server.state / "taken").exists() or server.descriptors() < DESCRIPTORS - 4:
            pass
        before = server.log_lines()
        with ExitStack() as opened:
            for number in range(CONNECTIONS):
                with suppress(OSError):
                    opened.enter_context(server.connected(ADDRESSES[number % len(ADDRESSES)]))
            for _ in range(40):
                assert server.owner("GET", "/v1/vms").status == 200
            assert read_to_the_end(server.connected()) == b""
        assert server.log_lines() - before < MAX_LOG_LINES


def test_junk_logins_while_the_provider_hangs_hold_up_nobody(tmp_path: Path) -> None:
    """It takes connections and says nothing; whoever shows a token of no known key waits for it, and nobody else."""
    with ExitStack() as opened:
        hanging = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        issuer = f"http://127.0.0.1:{hanging.getsockname()[1]}/pool"
        server = opened.enter_context(open_server(tmp_path / "open", "--issuer", issuer, "--patience", "60"))
        waiting = []
        for number in range(JUNK):
            login = jwt.encode({"alg": "RS256", "kid": str(number)}, {"iss": issuer, "sub": "ann"}, KEY)
            asked = HEAD + f"Authorization: Bearer {login}\r\nConnection: close\r\n\r\n".encode()
            address = ADDRESSES[number % len(ADDRESSES)]
            waiting.append(opened.enter_context(_encrypted(asked)(server, address)))
        for _ in range(10):
            server.answers_others()
            assert server.neighbour("/v1/vms", "vgpuctl_wrong")[0] == 401
        answers = [read_to_the_end(one) for one in waiting]
        assert all(b"login.unreachable" in answer for answer in answers)
        assert not any(b"127.0.0.1" in answer for answer in answers)
        server.answers_others()


def _ticket(server: Open) -> str:
    asked = server.neighbour("/v1/vms/talks/console-tickets?tenant=red", body={"kind": "serial"})
    return f"ticket.{asked[1]['ticket']}"


def _deaf(server: Open) -> socket.socket:
    """Somebody at the VM's serial console who types, but reads nothing of what comes back."""
    one = server.encrypted()
    head = (
        f"GET {SESSION} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {server.token}\r\nSec-WebSocket-Protocol: binary, {_ticket(server)}\r\n\r\n"
    )
    one.sendall(head.encode())
    assert one.recv(4096).startswith(b"HTTP/1.1 101 ")
    return _said(one, 256 * (b"\x82\xfe\x80\0" + bytes(4) + bytes(0x8000)))


def _reading(server: Open) -> ClientConnection:
    return connect(
        f"wss://127.0.0.1{SESSION}",
        sock=server.connected(),
        ssl=trust(server.state),
        additional_headers={"Authorization": f"Bearer {server.token}"},
        subprotocols=[Subprotocol("binary"), Subprotocol(_ticket(server))],
    )


def _told(stream: ClientConnection) -> Any:
    """Of who is there; what the guest prints is left out."""
    while not isinstance(message := stream.recv(timeout=120), str):
        pass
    return json.loads(message)["at"]


def test_who_reads_nothing_of_a_console_holds_up_nobody_else_at_it_and_loses_it(tmp_path: Path) -> None:
    with open_server(tmp_path / "open", "--patience", "12") as server:
        wish = {"tenant": "red", "name": "talks", "profile": "GRID T4-4Q", "image": "guest", "vcpus": 1}
        made = server.owner("POST", "/v1/vms", {**wish, "memory_mib": 256, "disk_bytes": 2**30})
        assert made.status == 202, made.body
        while server.owner("GET", "/v1/vms/talks?tenant=red").json()["state"] != "running":
            pass
        with _deaf(server) as deaf, _reading(server) as other:
            at = _told(other)
            assert (at["you_write"], len(at["watching"])) == (False, 1)
            other.send('{"take_over": true}')
            while not at["you_write"] or at["watching"]:
                at = _told(other)  # until the deaf one has lost its place
            read_to_the_end(deaf)


def test_a_listener_counts_what_is_open_and_nothing_else() -> None:
    limit = ConnectionLimit(total=8, of_peer=3)
    with Listener(socket.create_server(("127.0.0.1", 0)), limit) as listener, ExitStack() as opened:
        listener.setblocking(False)
        where = listener.getsockname()
        for round_ in range(4):
            mine = [socket.create_connection(where, source_address=(ADDRESSES[0], 0)) for _ in range(5)]
            taken = []
            for _ in range(5):
                with suppress(BlockingIOError):
                    taken.append(listener.accept()[0])
            assert len(taken) == 3, round_
            for one in (*mine, *taken):
                one.close()
        clients = []
        for address in (address for address in ADDRESSES[:4] for _ in range(3)):
            clients.append(opened.enter_context(socket.create_connection(where, source_address=(address, 0))))
        for _ in clients:
            with suppress(BlockingIOError):
                opened.enter_context(listener.accept()[0])
        assert [sum(map(_is_open, clients[first : first + 3])) for first in (0, 3, 6, 9)] == [2, 2, 2, 2]


def _is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def test_a_listener_without_descriptors_sends_away_and_says_nothing() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        listener = opened.enter_context(
            Listener(socket.create_server(("127.0.0.1", 0)), ConnectionLimit(), kept_back=2)
        )
        listener.setblocking(False)
        clients = [opened.enter_context(socket.create_connection(listener.getsockname())) for _ in range(5)]
        highest = max(one.fileno() for one in clients)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(2):
            opened.enter_context(listener.accept()[0])
        with pytest.raises(BlockingIOError):
            listener.accept()
