# SPDX-License-Identifier: Apache-2.0
"""What is sent to addresses that people name, and what is not."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.public_addresses import Address, addresses_of
from orchestrator.adapters.webhooks import sender as module
from orchestrator.adapters.webhooks.sender import HttpsSender, trusted
from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.core.webhook import Webhook, check_url
from orchestrator.services.webhooks import send
from tests.fakes.certificate import new_certificate

LOOPBACK = (IPv4Network("127.0.0.0/8"),)


class Receiver(ThreadingHTTPServer):
    """Takes POSTs over TLS and answers as it is told."""

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.certificate, key = new_certificate(directory)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.status, self.holds = 204, threading.Event()
        self.holds.set()
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self.server.holds.wait(30)
        self.send_response(self.server.status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path)
    yield made
    made.holds.set()
    made.shutdown()
    made.server_close()


def sender_to(receiver: Receiver) -> HttpsSender:
    return HttpsSender(trust=trusted(receiver.certificate), allowed=LOOPBACK)


def test_a_receiver_can_check_what_it_gets_by_the_secret_alone(receiver: Receiver) -> None:
    webhook = Webhook(
        id="i", tenant="red", name="hook", url=f"{receiver.url}/hook?a=b", nouns=(), created_at=0.0, position=0
    )
    send(sender_to(receiver), webhook, "the secret", 1700000000.5, "0123456789abcdef", {"noun": "vm", "name": "train"})
    ((path, headers, body),) = receiver.taken
    assert (path, json.loads(body)) == ("/hook?a=b", {"noun": "vm", "name": "train"})
    assert headers["vgpuctl-event"] == "0123456789abcdef"
    at, _, given = headers["vgpuctl-signature"].removeprefix("t=").partition(",v1=")
    right = hmac.new(b"the secret", at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert (at, given) == ("1700000000", right)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 500])
def test_other_answers_than_good_ones_are_failures_and_redirects_are_not_followed(
    receiver: Receiver, status: int
) -> None:
    receiver.status = status
    with pytest.raises(Retryable) as caught:
        sender_to(receiver).send(receiver.url, {}, b"{}")
    assert (caught.value.code, str(status) in str(caught.value.details)) == ("webhook.failed", True)
    assert [path for path, _, _ in receiver.taken] == ["/"]


def test_nothing_is_sent_to_a_server_that_is_not_trusted(receiver: Receiver) -> None:
    with pytest.raises(Retryable) as caught:
        HttpsSender(trust=trusted(None), allowed=LOOPBACK).send(receiver.url, {}, b"{}")
    assert (caught.value.code, receiver.taken) == ("webhook.failed", [])


def test_who_does_not_answer_holds_nobody_for_ever(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.5)
    receiver.holds.clear()
    with pytest.raises(Retryable) as caught:
        sender_to(receiver).send(receiver.url, {}, b"{}")
    assert caught.value.code == "webhook.failed"


def test_nothing_is_sent_when_no_time_is_left_for_its_answer(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(host: str, port: int) -> list[Address]:
        time.sleep(0.2)
        return addresses_of(host, port)

    def connected(*where: Any, **how: Any) -> socket.socket:
        connections.append(where)
        return connect(*where, **how)

    connect, connections = socket.create_connection, list[Any]()
    monkeypatch.setattr(socket, "create_connection", connected)
    monkeypatch.setattr(module, "LIMIT_S", 0.1)
    monkeypatch.setattr(module, "addresses_of", slowly)
    with pytest.raises(Retryable) as caught:
        sender_to(receiver).send(receiver.url, {}, b"{}")
    assert (caught.value.code, connections) == ("webhook.failed", [])


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "169.254.169.254",
     "[fe80::1]", "[fd00::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "2130706433", "224.0.0.1"],
)  # fmt: skip
def test_no_address_that_is_not_public_is_connected_to(host: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        HttpsSender(trust=trusted(None)).send(f"https://{host}:1/", {}, b"{}")
    assert caught.value.code == "webhook.address_refused"


@pytest.mark.parametrize(
    "url",
    ["http://example.org/", "ftp://example.org/", "https://", "https:///x", "https://u:p@example.org/", "example.org",
     "https://example.org/#x", "https://example.org/a b", "https://example.org/\r\nX: y", "https://example.org:99999/",
     "https://exämple.org/", "https://example.org/" + "a" * 500, "https://[::1/", "https://example.org:0/", ""],
)  # fmt: skip
def test_what_is_no_https_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_url(url)
    assert caught.value.code == "webhook.url_invalid"


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/x", "https://[::ffff:127.0.0.1]/x", "https://169.254.169.254/latest", "https://[::1]:8443/"],
)
def test_a_number_that_is_not_public_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidInput, match="not public") as refused:
        HttpsSender(trusted(None)).check(check_url(url))
    assert refused.value.code == "webhook.address_refused"
    HttpsSender(trusted(None)).check("https://localhost/a-name-is-judged-when-it-is-asked")
    HttpsSender(trusted(None), LOOPBACK).check("https://127.0.0.1/allowed")
