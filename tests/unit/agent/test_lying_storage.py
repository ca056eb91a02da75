# SPDX-License-Identifier: Apache-2.0
"""A bucket's server that answers whatever it likes keeps no thread of the agent, and so no VM, for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from socket import SHUT_RDWR, create_server, socket
from threading import Event, Thread

import pytest

from orchestrator.agent.images import bucket as asking
from orchestrator.agent.images.bucket import Objects
from orchestrator.core.bucket import Bucket, BucketKeys
from orchestrator.core.errors import Fatal, Retryable

MORE = "<ListBucketResult><NextContinuationToken>more</NextContinuationToken></ListBucketResult>"
LAUGHS = '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">'


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def lying(*pieces: bytes, every_s: float = 0.0) -> Iterator[Objects]:
    """Each connection gets all pieces, and the last one again and again where they come slowly."""
    server, threads = create_server(("127.0.0.1", 0)), list[Thread]()

    def serve(connected: socket) -> None:
        with connected:
            try:
                connected.recv(65536)
                for piece in pieces:
                    connected.sendall(piece)
                while every_s:
                    connected.sendall(pieces[-1])
                    time.sleep(every_s)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connected, _ = server.accept()
            except OSError:
                return
            threads.append(Thread(target=serve, args=(connected,)))
            threads[-1].start()

    accepting = Thread(target=accept)
    accepting.start()
    try:
        keys = BucketKeys(access_key="AKID", secret_key="secret")
        url = f"http://127.0.0.1:{server.getsockname()[1]}/backups"
        yield Objects(Bucket(url=url, region="", ca="", keys=keys))
    finally:
        server.shutdown(SHUT_RDWR)
        server.close()
        for thread in (accepting, *threads):
            thread.join(5)


@pytest.mark.parametrize(
    "pieces",
    [(b"HTTP/1.1 200 OK\r\n", b"x-a: b"), (b"HTTP/1.1 100 Continue\r\n\r\n",),
     (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"<"), (b"HTTP/1.1 200 OK\r\n\r\n", b"<")],
    ids=["head", "continues", "body", "body without an end"],
)  # fmt: skip
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_REQUEST_S", 0.3)
    began = time.monotonic()
    with lying(*pieces, every_s=0.05) as objects, pytest.raises(Retryable) as given_up:
        list(objects.names(""))
    assert given_up.value.code == "backup.unreachable"
    assert time.monotonic() - began < 3


def test_a_list_without_an_end_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_MAX_PAGES", 5)
    with lying(answer(MORE.encode())) as objects, pytest.raises(Fatal) as refused:
        list(objects.names(""))
    assert refused.value.code == "backup.failed"


def test_nothing_more_is_asked_for_what_nobody_wants() -> None:
    with lying() as objects:
        ended = Event()
        ended.set()
        with pytest.raises(Fatal):
            list(Objects(objects.bucket, ended).names(""))


@pytest.mark.parametrize(
    "body",
    [f"<!DOCTYPE r [{LAUGHS}]><r>&b;</r>".encode(), f"<!<!DOCTYPEDOCTYPE r [{LAUGHS}]><r>&b;</r>".encode(),
     f'<?xml version="1.0" encoding="utf-16"?><!DOCTYPE r [{LAUGHS}]><r>&b;</r>'.encode("utf-16"), b"\xff"],
    ids=["plain", "nested", "utf-16", "no text"],
)  # fmt: skip
def test_what_would_grow_is_not_read(body: bytes) -> None:
    with lying(answer(body)) as objects, pytest.raises(Fatal) as refused:
        list(objects.names(""))
    assert refused.value.code == "backup.failed"


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_what_stands_before_a_storage_that_does_not_answer_says_that_in_its_own_words(status: str) -> None:
    with lying(answer(b"<html><br>wait</html>", status)) as objects, pytest.raises(Retryable) as away:
        list(objects.names(""))
    assert away.value.code == "backup.unreachable"
