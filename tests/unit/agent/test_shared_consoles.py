# SPDX-License-Identifier: Apache-2.0
"""However many are at a console, libvirt opens it once; each sees all of it, and who is slow holds nobody up."""

from __future__ import annotations

import os
import queue
import resource
import threading
from contextlib import ExitStack

import pytest

from orchestrator.agent.libvirt.shared_consoles import ConsoleStream, SharedConsoles
from orchestrator.core.errors import Fatal

FULL = bytes(8 << 20)


class Guest:
    """Prints what it is told to, and keeps what it was sent."""

    def __init__(self) -> None:
        self.printed: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.sent = b""
        self.closed = 0

    def send(self, data: bytes) -> None:
        self.sent += data

    def receive(self, size: int) -> bytes:
        assert size
        return self.printed.get()

    def close(self) -> None:
        self.closed += 1
        self.printed.put(b"")


class Host:
    def __init__(self) -> None:
        self.guests: list[Guest] = []
        self.refused = False

    def open(self, vm: str) -> Guest:
        assert vm
        if self.refused:
            raise Fatal("console.refused", "no", hint="none")
        self.guests.append(Guest())
        return self.guests[-1]


def read(stream: ConsoleStream, size: int) -> bytes:
    got = b""
    while len(got) < size and (data := stream.receive(size - len(got))):
        got += data
    return got


def test_all_see_what_one_console_prints_and_the_last_one_closes_it() -> None:
    host = Host()
    consoles = SharedConsoles(host.open)
    one, two, other = consoles.join("a"), consoles.join("a"), consoles.join("b")
    guest = host.guests[0]
    guest.printed.put(b"hello")
    assert (read(one, 5), read(two, 5)) == (b"hello", b"hello")
    one.send(b"x")
    two.send(b"y")
    assert guest.sent == b"xy"
    one.close()
    guest.printed.put(b"more")
    assert read(two, 4) == b"more"
    assert guest.closed == 0
    two.close()
    assert (guest.closed, len(host.guests)) == (1, 2)
    again = consoles.join("a")
    assert len(host.guests) == 3
    for stream in (again, other):
        stream.close()


def test_a_guest_that_ends_ends_it_for_all_after_its_last_words() -> None:
    host = Host()
    consoles = SharedConsoles(host.open)
    streams = [consoles.join("a") for _ in range(3)]
    host.guests[0].printed.put(b"bye")
    host.guests[0].printed.put(b"")
    assert [read(stream, 100) for stream in streams] == [b"bye"] * 3
    streams.append(consoles.join("a"))
    assert len(host.guests) == 2
    for stream in streams:
        stream.close()
    assert [guest.closed for guest in host.guests] == [1, 1]


def test_one_who_reads_nothing_loses_its_stream_and_the_others_get_everything() -> None:
    host = Host()
    consoles = SharedConsoles(host.open, slow_s=1.0)
    slow, quick = consoles.join("a"), consoles.join("a")
    host.guests[0].printed.put(FULL)
    host.guests[0].printed.put(FULL)
    assert read(quick, 2 * len(FULL)) == 2 * FULL
    assert len(read(slow, len(FULL))) < len(FULL)
    for stream in (slow, quick):
        stream.close()


def test_one_who_is_alone_may_be_slow() -> None:
    host = Host()
    alone = SharedConsoles(host.open, slow_s=0.05).join("a")
    host.guests[0].printed.put(FULL)
    threading.Event().wait(0.3)
    assert read(alone, len(FULL)) == FULL
    alone.close()


def test_a_console_that_was_refused_may_be_asked_for_again() -> None:
    host = Host()
    consoles = SharedConsoles(host.open)
    host.refused = True
    with pytest.raises(Fatal):
        consoles.join("a")
    host.refused = False
    consoles.join("a").close()
    assert host.guests[0].closed == 1


def test_an_agent_with_many_descriptors_shows_consoles_too() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as undo:
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (taken := os.open("/dev/null", os.O_RDONLY)) < 1024:
            undo.callback(os.close, taken)
        undo.callback(os.close, taken)
        host = Host()
        stream = SharedConsoles(host.open).join("a")
        host.guests[0].printed.put(b"hello")
        assert read(stream, 5) == b"hello"
        stream.close()
