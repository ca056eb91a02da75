# SPDX-License-Identifier: Apache-2.0
"""However many consoles are open: observing and acting go on, other tenants and VMs get theirs."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest

from orchestrator.adapters.agent_link.carrying import content_of
from orchestrator.adapters.agent_link.conversation import Conversation
from orchestrator.adapters.agent_link.link import AgentStream, SshHostLink
from orchestrator.adapters.agent_link.stream_lines import STREAMS_PER_TRANSPORT, STREAMS_PER_VM, TRANSPORTS
from orchestrator.api.routes.guest_streams import MAX_STREAMS, MAX_STREAMS_PER_TENANT, stream_place
from orchestrator.core.actions.volume_copy import DISK, END, RECORD, SIZE
from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.hosts.host import Host
from tests.hostile.bad_agent import HELLO, BadChannel, answering
from tests.hostile.test_frames import HOST

MAX_SESSIONS = 10


class Sshd:
    """As many sessions on a connection as sshd allows by default."""

    def __init__(self) -> None:
        self.open: list[Channel] = []
        self.closed = False

    def open_session(self, timeout: float) -> BadChannel:
        assert timeout > 0
        if len(self.open) >= MAX_SESSIONS:
            raise paramiko.ChannelException(2, "open failed")
        channel = Channel(self)
        self.open.append(channel)
        return channel

    def is_active(self) -> bool:
        return not self.closed

    def close(self) -> None:
        self.closed = True


class Channel(BadChannel):
    def __init__(self, sshd: Sshd) -> None:
        super().__init__(answering('{"domain":null}'), HELLO)
        self._sshd = sshd

    def close(self) -> None:
        if self in self._sshd.open:
            self._sshd.open.remove(self)
        super().close()


class Link(SshHostLink):
    def __init__(self) -> None:
        super().__init__(site="site", key_file=Path("/none"))
        self.transports: list[Sshd] = []

    def _connect(self, host: Host) -> Any:
        assert host.address
        self.transports.append(Sshd())
        return self.transports[-1]

    def _connect_stream(self, host: Host) -> Any:
        return self._connect(host)


def consoles(link: Link, count: int) -> list[AgentStream]:
    return [link.open_console(HOST, f"vm-{number}") for number in range(count)]


def test_consoles_leave_observing_its_own_connection() -> None:
    link = Link()
    assert link.observe_domain(HOST, "a") is None
    opened = consoles(link, STREAMS_PER_TRANSPORT * TRANSPORTS)
    with pytest.raises(Conflict) as refused:
        link.open_console(HOST, "one-more")
    assert refused.value.code == "stream.too_many"
    for _ in range(20):
        assert link.observe_domain(HOST, "a") is None
    assert not any(one.closed for one in link.transports)
    for stream in opened:
        stream.close()
        stream.close()
    assert sum(len(one.open) for one in link.transports) == 1
    for stream in consoles(link, STREAMS_PER_TRANSPORT * TRANSPORTS):
        stream.close()


def test_a_vm_has_so_many_streams_and_another_one_still_gets_its_own() -> None:
    link = Link()
    opened = [link.open_tcp(HOST, "greedy", 22) for _ in range(STREAMS_PER_VM)]
    with pytest.raises(Conflict):
        link.open_console(HOST, "greedy")
    link.open_console(HOST, "modest").close()
    opened[0].close()
    link.open_console(HOST, "greedy").close()


def test_a_refused_channel_is_a_busy_host_and_its_connection_stays() -> None:
    link = Link()
    link.observe_domain(HOST, "a")
    (transport,) = link.transports
    transport.open[0].closed = True  # a kept conversation that has ended, and is closed when it is to be used again
    transport.open.extend(Channel(transport) for _ in range(MAX_SESSIONS))
    for _ in range(4):
        with pytest.raises(Retryable) as refused:
            link.observe_domain(HOST, "a")
        assert refused.value.code == "host.busy"
    assert not transport.closed
    transport.open.clear()
    assert link.observe_domain(HOST, "a") is None
    assert link.transports == [transport]


def test_what_could_not_be_opened_takes_no_place() -> None:
    link = Link()
    consoles(link, 1)
    (transport,) = link.transports
    transport.open.extend(Channel(transport) for _ in range(MAX_SESSIONS - 1))
    for _ in range(STREAMS_PER_TRANSPORT * 2):
        with pytest.raises(Retryable):
            link.open_console(HOST, "busy")
    transport.open.clear()
    link.open_console(HOST, "busy").close()


def test_a_tenant_with_all_its_streams_open_leaves_the_others_theirs() -> None:
    held = [stream_place("greedy") for _ in range(MAX_STREAMS_PER_TENANT)]
    for one in held:
        one.__enter__()
    with pytest.raises(Conflict), stream_place("greedy"):
        pass
    with stream_place("modest"):
        pass
    others = [stream_place(f"t{number}") for number in range(MAX_STREAMS - len(held))]
    for one in others:
        one.__enter__()
    with pytest.raises(Conflict), stream_place("late"):
        pass
    for one in (*held, *others):
        one.__exit__(None, None, None)
    with stream_place("greedy"):
        pass


class Giver:
    """Sends a snapshot; beyond it, its last record again and again."""

    def __init__(self, *records: tuple[bytes, int, bytes], ends: bool) -> None:
        self._sent = [RECORD.pack(kind, begin, len(content)) + content for kind, begin, content in records]
        if ends:
            digest = sha256(b"".join(self._sent)).digest()
            self._sent.append(RECORD.pack(END, 0, len(digest)) + digest)
        self._waiting = b"".join(self._sent)

    def receive_bytes(self, size: int, _limit_s: float) -> bytes:
        self._waiting = self._waiting or self._sent[-1]
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given


def given(*records: tuple[bytes, int, bytes], ends: bool = True) -> bytes:
    return b"".join(content_of(cast("Conversation", Giver(*records, ends=ends)), 1.0))


def test_a_snapshot_comes_with_its_holes() -> None:
    assert given((SIZE, 9, b""), (DISK, 2, b"ab"), (DISK, 6, b"c")) == b"\0\0ab\0\0c\0\0"


@pytest.mark.parametrize(
    "last",
    [(SIZE, 9, b""), (DISK, 3, b""), (DISK, 2, b"b"), (DISK, 8, b"bc"), (b"X", 0, b""), (b"V", 0, b"x")],
    ids=["size again", "nothing", "earlier", "beyond its end", "no kind", "variables"],
)
def test_records_that_never_end_a_snapshot_end_its_reading(last: tuple[bytes, int, bytes]) -> None:
    """Nobody could cancel it: nothing would come of it."""
    with pytest.raises(Retryable) as cut:
        given((SIZE, 9, b""), (DISK, 2, b"a"), last, ends=False)
    assert cut.value.code == "volume.cut"
