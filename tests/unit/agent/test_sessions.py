# SPDX-License-Identifier: Apache-2.0
"""Sessions whose other end vanished without a word: the socket stays open, as sshd's relay holds it."""

from __future__ import annotations

import fcntl
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent import session, sessions
from orchestrator.agent.assembly import Agent, Config, assemble
from orchestrator.agent.server import MAX_GREETING, Server
from orchestrator.agent.sessions import KEEPALIVES_MISSED, MAX_SESSIONS, Place, Sessions
from orchestrator.agent.timing import RealTiming
from orchestrator.core.actions.host_actions import FencingToken
from orchestrator.core.diff import ExpectedHost, compare
from orchestrator.core.errors import Retryable
from orchestrator.core.protocol import SUPPORTED_VERSIONS, encode_frame, read_frame
from tests.unit.core.test_diff import HOST

SITE = "site-1"
VM = "12345678-1234-4234-8234-123456789abc"
LIMIT_S = 30.0

Message = dict[str, object]


class Controller:
    """One connection of a controller; nothing is said that is not called here."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(str(path))
        self.reader = self.socket.makefile("rb")

    def say(self, message: Message) -> None:
        self.socket.sendall(encode_frame(message))

    def hear(self) -> Message | None:
        return read_frame(self.reader)

    def greet(self, name: str, kind: str = "channel") -> Message | None:
        hello = {"protocol": list(SUPPORTED_VERSIONS), "site": SITE, "kind": kind, "controller": name}
        self.say({"hello": hello})
        return self.hear()

    def watch(self, **params: object) -> Message | None:
        self.say({"id": 1, "method": "watch", "params": params})
        return self.hear()


Connect = Callable[[], Controller]


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    root = tmp_path / "root"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    config = Config(site=SITE, epoch=1, storage=tmp_path / "storage")
    return assemble(config, root=root, libvirt_uri="test:///default", timing=RealTiming())


@pytest.fixture
def connect(agent: Agent, tmp_path: Path) -> Iterator[Connect]:
    server = Server(agent, tmp_path / "agent.sock")

    def serve() -> None:
        with pytest.raises(OSError):
            server.serve_forever()

    threading.Thread(target=serve, daemon=True).start()
    with ExitStack() as stack:
        stack.callback(server.close)

        def new() -> Controller:
            controller = Controller(tmp_path / "agent.sock")
            stack.callback(controller.socket.close)
            stack.callback(controller.reader.close)
            return controller

        yield new


def is_greeted(answer: Message | None) -> bool:
    return answer is not None and "hello" in answer


def test_a_newer_session_takes_the_place_of_the_same_controllers_most_silent_one(connect: Connect) -> None:
    silent = []
    for _ in range(MAX_SESSIONS):
        silent.append(connect())
        assert is_greeted(silent[-1].greet("a"))
    newer = connect()
    assert is_greeted(newer.greet("a"))
    assert silent[0].hear() is None, "it was ended"
    silent[1].say({"id": 1, "method": "observe_domain", "params": {"vm": VM}})
    assert silent[1].hear() == {"id": 1, "result": {"domain": None}}, "the others are as they were"


def test_whoever_has_no_session_that_can_end_is_told_why_and_the_doctor_tells(agent: Agent, connect: Connect) -> None:
    for _ in range(MAX_SESSIONS):
        assert is_greeted(connect().greet("a"))
    answer = connect().greet("b")
    assert answer is not None
    error = answer["error"]
    assert isinstance(error, dict)
    assert error["code"] == "agent.sessions_full"
    assert "\n" not in error["message"]
    snapshot = agent.observer.observe()
    wanted = ExpectedHost(host=HOST, vms=(), busy=frozenset(), gone=frozenset())
    assert snapshot.sessions_full
    assert "agent.sessions_full" in [
        one.code for one in compare(wanted, replace(snapshot, machine_id=HOST.machine_id or snapshot.machine_id))
    ]


def test_who_does_not_greet_takes_no_session_from_others(connect: Connect) -> None:
    at_work = connect()
    assert is_greeted(at_work.greet("a"))
    with ThreadPoolExecutor(16) as pool:
        strangers = list(pool.map(lambda _: connect(), range(MAX_GREETING)))
        told = [pool.submit(connect().hear) for _ in range(3)]
    assert all("agent.sessions_full" in str(one.result()) for one in told)
    at_work.say({"id": 1, "method": "observe_domain", "params": {"vm": VM}})
    assert at_work.hear() == {"id": 1, "result": {"domain": None}}
    assert is_greeted(strangers[0].greet("a"))


def test_a_channel_that_says_nothing_is_ended(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CHANNEL_SILENT_S", 0.2)
    channel = connect()
    assert is_greeted(channel.greet("a"))
    assert channel.hear() is None


def test_a_watching_controller_that_answers_no_ping_is_ended(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEEPALIVE_S", 0.4)
    monkeypatch.setattr(session, "_EVENT_POLL_SECONDS", 0.05)
    vanished, alive = connect(), connect()
    for one in (vanished, alive):
        assert is_greeted(one.greet("a"))
        assert one.watch(keepalive=True) == {"id": 1, "result": {"keepalive_s": 0.4}}
    for _ in range(KEEPALIVES_MISSED + 2):  # longer than the vanished one may be silent
        assert alive.hear() == {"ping": {}}
        alive.say({"ping": {}})
    while (message := vanished.hear()) is not None:
        assert message == {"ping": {}}


def test_a_watching_controller_that_knows_no_pings_gets_none(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEEPALIVE_S", 0.05)
    monkeypatch.setattr(session, "_EVENT_POLL_SECONDS", 0.02)
    older = connect()
    assert is_greeted(older.greet(""))
    assert older.watch() is not None
    older.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        older.hear()


def test_a_watching_controller_that_asks_for_no_readings_gets_none(
    agent: Agent, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_EVENT_POLL_SECONDS", 0.02)
    agent.readings.start()
    older, newer = connect(), connect()
    for controller in (older, newer):
        assert is_greeted(controller.greet("a"))
    assert older.watch() is not None
    assert newer.watch(readings=True) is not None
    assert "readings" in (newer.hear() or {})
    older.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        older.hear()
    agent.readings.stop()


def held(controller: str, *, stream: bool, silent_s: float) -> tuple[Place, socket.socket]:
    near, far = socket.socketpair()
    far.settimeout(0)
    place = Place(near, controller=controller, stream=stream)
    place.heard -= silent_s
    return place, far


def has_ended(far: socket.socket) -> bool:
    try:
        return far.recv(1) == b""
    except BlockingIOError:
        return False


def test_channels_give_way_before_consoles_and_work_under_way_never() -> None:
    places = Sessions(3)
    working, at_work = held("a", stream=False, silent_s=50)
    console, person = held("a", stream=True, silent_s=40)
    idle, nobody = held("a", stream=False, silent_s=10)
    working.working = True
    for one in (working, console, idle):
        places.enter(one)
    places.enter(held("a", stream=True, silent_s=0)[0])
    assert [has_ended(far) for far in (at_work, person, nobody)] == [False, False, True]
    places.enter(held("a", stream=True, silent_s=0)[0])
    assert [has_ended(far) for far in (at_work, person)] == [False, True]
    with pytest.raises(Retryable) as refused:
        places.enter(held("b", stream=False, silent_s=0)[0])
    assert refused.value.code == "agent.sessions_full"


def test_a_console_ends_when_its_controller_was_long_silent_on_all_its_sessions() -> None:
    places = Sessions()
    long = sessions.STREAM_SILENT_S + 1
    gone, of_gone = held("gone", stream=True, silent_s=long)
    quiet, of_quiet = held("alive", stream=True, silent_s=long)
    watching, _ = held("alive", stream=False, silent_s=5)
    for one in (gone, quiet, watching):
        places.enter(one)
    places.enter(held("alive", stream=False, silent_s=0)[0])
    assert (has_ended(of_gone), has_ended(of_quiet)) == (True, False)


def test_a_newer_attempt_alone_ends_what_an_older_one_has_open(agent: Agent) -> None:
    """Nobody is left to end it, and sshd's relay holds it open."""
    older = FencingToken(site=SITE, epoch=1, operation="o", attempt=1)
    held, over = threading.Event(), threading.Event()

    def hold() -> bool:
        with agent.performer.turn(VM, older, end=over.set):
            held.set()
            return over.wait(LIMIT_S)

    def follow(token: FencingToken) -> bool:
        with agent.performer.turn(VM, token):
            return over.is_set()

    with ThreadPoolExecutor(3) as pool:
        ended = pool.submit(hold)
        assert held.wait(LIMIT_S)
        same = pool.submit(follow, older)
        assert not over.wait(0.3), "it waits for its turn"
        assert pool.submit(follow, replace(older, attempt=2)).result(LIMIT_S)
        assert ended.result()
        assert same.exception() is not None


def test_a_process_with_many_open_files_sees_what_has_come() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    near, far = socket.socketpair()
    with near, far, socket.socket(fileno=fcntl.fcntl(near, fcntl.F_DUPFD, 1500)) as high:
        assert not sessions.readable(high)
        far.sendall(b"x")
        assert sessions.readable(high)
