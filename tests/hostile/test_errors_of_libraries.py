# SPDX-License-Identifier: Apache-2.0
"""Whatever a library raises where strangers are talked to: an error of ours, in a line. Each class that the library has
is raised at that place."""

from __future__ import annotations

import http.client
import lzma
import socket
import ssl
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import paramiko
import pytest
from backports import zstd
from joserfc.errors import JoseError
from websockets.datastructures import Headers
from websockets.exceptions import WebSocketException
from websockets.http11 import Response

from orchestrator.adapters.agent_link import ssh
from orchestrator.adapters.agent_link.conversation import Conversation
from orchestrator.adapters.bundles import library
from orchestrator.adapters.controllers import peer_auth
from orchestrator.adapters.images.sources import Downloads
from orchestrator.cli import guest_stream
from orchestrator.cli.session import CliSession
from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.oidc.identities import OidcIdentities
from orchestrator.oidc.keys import PublishedKeys
from orchestrator.oidc.provider import Provider
from tests.fakes.driver_files import deb_file
from tests.fakes.fake_world import FakeClock

HOST = Host(
    name="bad", address="127.0.0.1", port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA", state="ready",
    state_reason=None, cordoned=False, machine_id=None, epoch=1, managed_gpus=(), last_seen_at=None,
)  # fmt: skip
SYSTEM: tuple[type[Exception], ...] = (OSError, TimeoutError, ConnectionResetError, ssl.SSLError)
PARSING = (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError)
KEY = paramiko.ECDSAKey.generate()


def all_of(*bases: type[Exception]) -> list[type[Exception]]:
    """These and their subclasses in their own libraries and in Python's: what another library derives from them depends
    on which test files were imported before, and is raised nowhere here."""
    libraries = sys.stdlib_module_names | {library_of(base) for base in bases}
    found: dict[type[Exception], None] = {}
    waiting = list(bases)
    while waiting:
        kind = waiting.pop(0)
        found[kind] = None
        waiting += [subclass for subclass in kind.__subclasses__() if library_of(subclass) in libraries]
    return list(found)


def library_of(kind: type[Exception]) -> str:
    """Its package at the top."""
    return kind.__module__.partition(".")[0]


def raised(kind: type[Exception]) -> Exception:
    """One of this class, made as its library makes it."""
    request = httpx2.Request("GET", "http://example.test")
    answer, member = Response(500, "broken", Headers(), b"<html>"), tarfile.TarInfo("x")
    make: Callable[..., Exception] = kind
    ways: list[Callable[[], Exception]] = [
        lambda: make("broken"),
        make,
        lambda: make("a", "b"),
        lambda: make("a", ["b"]),
        lambda: make("a", KEY, KEY),
        lambda: make({("127.0.0.1", 22): OSError("x")}),
        lambda: make(1, "b"),
        lambda: make(None, None, None),
        lambda: make("a", "b", "c"),
        lambda: make("a", "b", "c", 1),
        lambda: make(member, "b"),
        lambda: make(member),
        lambda: make(answer),
        lambda: make("a", request=request, response=httpx2.Response(500, request=request)),
        lambda: make("utf-8", b"x", 0, 1, "broken"),
    ]
    for way in ways:
        with suppress(Exception):
            made = way()
            str(made)
            return made
    raise AssertionError(f"{kind} is made in another way")


class BrokenChannel:
    """As paramiko's, of a connection that breaks with this."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def settimeout(self, _seconds: float | None) -> None:
        """Any."""

    def close(self) -> None:
        """Gone already."""

    def recv_stderr_ready(self) -> bool:
        return False

    send_ready = usable = lambda self: True

    def _breaks(self, *_: object, **__: object) -> Any:
        raise self.error

    sendall = send = recv = exec_command = _breaks


class BrokenTransport(BrokenChannel):
    """The channel opens or does not."""

    def open_session(self, timeout: float) -> BrokenChannel:
        assert timeout
        return BrokenChannel(self.error)


class ThisProvider(Provider):
    """Whose answers are good."""

    def metadata(self) -> dict[str, Any]:
        return {"authorization_endpoint": "https://login.test/a", "token_endpoint": "https://login.test/t"}

    def get(self, url: str) -> dict[str, Any]:
        return {"keys": [url]}


def _raise(error: Exception) -> Callable[..., Any]:
    def broken(*_: object, **__: object) -> Any:
        raise error

    return broken


def _exchanged(transport: paramiko.Transport, timeout: float) -> None:
    assert timeout
    transport.initial_kex_done = True


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


@pytest.fixture
def own_key(tmp_path: Path) -> Path:
    KEY.write_private_key_file(str(tmp_path / "key"))
    return tmp_path / "key"


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(VgpuctlError) as caught:
        act()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300
    assert "." in caught.value.code


OF_SSH = [*all_of(paramiko.SSHException, EOFError), *SYSTEM, *PARSING, struct.error]


@pytest.mark.parametrize("kind", OF_SSH)
def test_a_handshake(monkeypatch: pytest.MonkeyPatch, listener: int, kind: type[Exception]) -> None:
    monkeypatch.setattr(paramiko.Transport, "start_client", _raise(raised(kind)))
    refused(lambda: ssh.scan_host_key("127.0.0.1", listener))


@pytest.mark.parametrize("kind", OF_SSH)
def test_a_login(monkeypatch: pytest.MonkeyPatch, listener: int, own_key: Path, kind: type[Exception]) -> None:
    monkeypatch.setattr(paramiko.Transport, "start_client", _exchanged)
    monkeypatch.setattr(paramiko.Transport, "get_remote_server_key", _raise(raised(kind)))
    host = Host(**{**vars(HOST), "port": listener})
    refused(lambda: ssh.connect(host, user="u", key_file=own_key, lost=lambda: None))


@pytest.mark.parametrize("kind", [*all_of(paramiko.SSHException, EOFError), *SYSTEM])
def test_a_conversation(kind: type[Exception]) -> None:
    error: Any = raised(kind)
    channel: Any = BrokenChannel(error)
    transport: Any = BrokenTransport(error)
    refused(lambda: Conversation.open(HOST, transport, {}, "channel", {}))
    refused(lambda: Conversation(HOST, channel).ask("observe", {}, limit_s=1))
    refused(lambda: Conversation(HOST, channel).receive(1, 100))
    for act in (Conversation.send, Conversation.send_some):
        with pytest.raises(OSError, match=r"^"):
            act(Conversation(HOST, channel), b"x")
    with pytest.raises(OSError, match=r"^"):
        Conversation(HOST, channel).receive_bytes(1)


OF_HTTP = all_of(httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, httpx2.CookieConflict)


@pytest.mark.parametrize("kind", OF_HTTP)
def test_a_download(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def refusal(source: str, why: str) -> InvalidInput:
        return InvalidInput("image.source_refused", f"{source}: {why}")

    def download() -> None:
        with Downloads((ip_network("127.0.0.0/8"),)).open("http://127.0.0.1/x", refusal) as chunks:
            list(chunks)

    monkeypatch.setattr(httpx2.Client, "send", _raise(raised(kind)))
    refused(download)


@pytest.mark.parametrize("kind", [OSError, UnicodeError, ValueError, OverflowError])
def test_the_name_of_a_download(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def download() -> None:
        with Downloads().open("http://example.test/x", lambda _source, why: InvalidInput("image.source_refused", why)):
            raise AssertionError

    monkeypatch.setattr(socket, "getaddrinfo", _raise(kind("broken")))
    refused(download)


@pytest.mark.parametrize("kind", [*OF_HTTP, *SYSTEM, ValueError, UnicodeError])
def test_an_identity_provider(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    monkeypatch.setattr(httpx2.Client, "stream", _raise(raised(kind)))
    refused(Provider(issuer="https://login.test").metadata)


@pytest.mark.parametrize("kind", [*all_of(JoseError), *PARSING])
def test_an_id_token_and_the_keys(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    provider, clock = ThisProvider(issuer="https://login.test"), FakeClock()
    error = raised(kind)
    monkeypatch.setattr("orchestrator.oidc.identities.jws.extract_compact", _raise(error))
    shown = OidcIdentities(provider=provider, audience="a", groups_claim="g", clock=clock)
    refused(lambda: shown.login("a.b.c"))
    assert shown.awaited("a.b.c") is None
    monkeypatch.setattr("orchestrator.oidc.keys.KeySet.import_key_set", _raise(error))
    keys = PublishedKeys(provider, clock)
    asked = keys.awaited("one")
    assert asked is not None
    asked.result(10)
    refused(keys.known)


OF_WEBSOCKETS = [kind for kind in all_of(WebSocketException) if kind.__module__ == WebSocketException.__module__]


@pytest.mark.parametrize("kind", [*OF_WEBSOCKETS, *SYSTEM, EOFError, ValueError])
def test_a_stream_of_a_guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Exception]) -> None:
    session = CliSession()
    vars(session).update(state=tmp_path, context=None)
    monkeypatch.setattr(guest_stream, "unix_connect", _raise(raised(kind)))

    def stream() -> None:
        with guest_stream.open_stream(session, "vm", "console", tenant="default"):
            raise AssertionError

    refused(stream)


@pytest.mark.parametrize("kind", [*all_of(http.client.HTTPException), *SYSTEM])
def test_another_controller(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def ask() -> None:
        with peer_auth.asked("127.0.0.1:1", "", "/", headers={}):
            raise AssertionError

    monkeypatch.setattr(http.client.HTTPConnection, "request", _raise(raised(kind)))
    refused(ask)


OF_ARCHIVES = [*all_of(tarfile.TarError), zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError, MemoryError, OSError]


@pytest.mark.parametrize("kind", [*OF_ARCHIVES, *PARSING, ZeroDivisionError, AssertionError, UnicodeError])
def test_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Exception]) -> None:
    (tmp_path / "f").write_bytes(deb_file())
    monkeypatch.setattr("orchestrator.adapters.bundles.library.tarfile.open", _raise(raised(kind)))
    refused(partial(library.content_of, tmp_path / "f"))
