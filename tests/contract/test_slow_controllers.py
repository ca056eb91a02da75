# SPDX-License-Identifier: Apache-2.0
"""Another controller that answers for ever is not listened to for ever."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from orchestrator.adapters import whole_answer
from orchestrator.adapters.controllers import readings
from orchestrator.adapters.controllers.peer_auth import asked, chunks, fingerprint
from orchestrator.core.controller import Door
from orchestrator.core.errors import Retryable
from tests.fakes.certificate import new_certificate
from tests.fakes.control_plane import T4_HOST, control_plane
from tests.fakes.dripping import BODY, CHUNK, HEAD, STATUS, dripping


@pytest.mark.parametrize("first", [BODY, HEAD, STATUS])
def test_a_controller_that_answers_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(readings, "ANSWER_S", 0.5)
    plane, (certificate, key) = control_plane(tmp_path), new_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with dripping(first, tls) as address:
        door = Door(name="slow", address=address, certificate=fingerprint(certificate), credential="0" * 64)
        with plane.store.begin() as tx:
            tx.controllers.beat("slow")
            tx.controllers.put_door(door)
        elsewhere, began = readings.ReadingsElsewhere(plane.store, "this", "shown"), time.monotonic()
        assert elsewhere.readings([T4_HOST], moments=1) == {}
        assert 0.4 < time.monotonic() - began < 30
        monkeypatch.setattr(readings, "ANSWER_S", 60.0)
        began = time.monotonic()
        assert elsewhere.readings([T4_HOST], moments=1) == {}
        assert time.monotonic() - began < 30, "it is left alone for a while"
    plane.store.close()


@pytest.mark.parametrize("first", [BODY, HEAD, STATUS, CHUNK])
def test_an_image_that_drips_is_left_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(whole_answer, "FILE_S", 0.3)
    certificate, key = new_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    began = time.monotonic()
    with (
        dripping(first, tls) as address,
        pytest.raises(Retryable) as caught,
        asked(address, fingerprint(certificate), "/controllers/images/x.raw", headers={}) as answer,
    ):
        list(chunks(answer))
    assert caught.value.code == "controller.unreachable"
    assert 0.3 <= time.monotonic() - began < 3


def test_a_file_that_goes_on_coming_may_take_its_time() -> None:
    ours, theirs = socket.socketpair()

    def send() -> None:
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(10):
            time.sleep(0.05)
            theirs.sendall(b"x" * 100)

    sender = threading.Thread(target=send)
    with ours, theirs:
        ours.settimeout(5)
        answer = whole_answer.WholeAnswer(ours, pace=whole_answer.Pace(0.3, 100))
        sender.start()
        answer.begin()
        assert len(answer.read()) == 1000
        sender.join()
