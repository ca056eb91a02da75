# SPDX-License-Identifier: Apache-2.0
"""The client as programs use it: typed, here or with asyncio, patient with a server that goes away."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import vgpuctl
from orchestrator.client.async_http import unix_http
from orchestrator.client.client import Client
from orchestrator.client.connection import Connection
from orchestrator.client.generated.async_client import AsyncClient
from orchestrator.client.generated.async_connection import AsyncConnection
from orchestrator.client.http import UnixHttp
from orchestrator.client.opening import RETRIES, open_async_client, open_client
from orchestrator.core.errors import FAMILIES, Fatal, NotFound, Retryable, Unknown
from tests.fakes.running import running_server

WANTED = {"name": "train", "profile": "t4-small", "image": "guest"}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("programs")) as directory:
        yield directory


@pytest.fixture
def here(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    return state


def test_all_that_a_program_names_is_in_one_package() -> None:
    errors = {family.__name__ for family in FAMILIES.values()}
    assert errors - {"WorldError"} <= {*vgpuctl.__all__}
    assert [name for name in vgpuctl.__all__ if not hasattr(vgpuctl, name)] == []
    assert get_type_hints(vgpuctl.models.MigEntryForm)["mig-enabled"] is bool


@pytest.mark.usefixtures("here")
def test_a_vm_is_made_waited_for_and_deleted() -> None:
    with open_client() as client:
        done = client.wait(client.create_vm(WANTED))
        assert done is not None
        assert done["state"] == "done"
        assert client.vm("train", "default")["state"] == "running"
        assert client.wait(client.create_vm(WANTED)) is None
        client.wait(client.delete_vm("train", "default"))
        with pytest.raises(NotFound) as caught:
            client.vm("train", "default")
        assert caught.value.code == "vm.unknown"


@pytest.mark.usefixtures("here")
def test_what_failed_is_raised_as_what_it_is() -> None:
    with open_client() as client, pytest.raises(Fatal) as caught:
        client.wait(client.create_vm({**WANTED, "name": "fails"}), timeout_s=60)
    assert caught.value.code == "gpu.create_failed"


@pytest.mark.usefixtures("here")
def test_with_asyncio_requests_go_side_by_side() -> None:
    async def work() -> list[str]:
        async with open_async_client() as client:
            names = [f"a{number}" for number in range(3)]
            started = await asyncio.gather(*(client.create_vm({**WANTED, "name": name}) for name in names))
            await asyncio.gather(*(client.wait(one) for one in started))
            states: list[str] = [vm["state"] for vm in await client.vms("default") if vm["name"] in names]
            await asyncio.gather(*(client.delete_vm(name, "default") for name in names))
            return states

    assert asyncio.run(work()) == ["running"] * 3


@pytest.fixture
def faltering(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A server that takes two requests and hangs up, then answers. What was asked."""
    path, asked = tmp_path / "s", list[bytes]()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    body = b'{"operation": null, "name": "train", "existing": false, "preempted": []}'

    def serve() -> None:
        with listener:
            for turn in range(3):
                with listener.accept()[0] as peer:
                    asked.append(peer.recv(65536))
                    if turn == 2:
                        peer.sendall(b"HTTP/1.1 202 Accepted\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    threading.Thread(target=serve, daemon=True).start()
    return path, asked


def _keys(asked: list[bytes]) -> list[bytes]:
    return re.findall(rb"Idempotency-Key: (\w{32})\r\n", b"".join(asked))


def test_a_lost_answer_is_asked_for_again_under_the_same_key(faltering: tuple[Path, list[bytes]]) -> None:
    path, asked = faltering
    assert Client(Connection(UnixHttp(path, 30), RETRIES)).create_vm(WANTED)["name"] == "train"
    assert (len(_keys(asked)), len(set(_keys(asked)))) == (3, 1)


def test_with_asyncio_too(faltering: tuple[Path, list[bytes]]) -> None:
    path, asked = faltering
    client = AsyncClient(AsyncConnection(unix_http(path, {}), RETRIES))
    assert asyncio.run(client.create_vm(WANTED))["name"] == "train"
    assert (len(_keys(asked)), len(set(_keys(asked)))) == (3, 1)


def test_what_must_not_come_twice_is_sent_once(faltering: tuple[Path, list[bytes]]) -> None:
    path, asked = faltering
    with pytest.raises(Unknown) as caught:
        Client(Connection(UnixHttp(path, 30), RETRIES)).create_token({"tenant": "default", "role": "tenant-user"})
    assert (caught.value.code, len(asked), _keys(asked)) == ("server.lost", 1, [])


def test_nobody_there_is_said_after_the_last_try(tmp_path: Path) -> None:
    client = AsyncClient(AsyncConnection(unix_http(tmp_path / "none", {}), 1))
    with pytest.raises(Retryable) as caught:
        asyncio.run(client.whoami())
    assert caught.value.code == "server.unreachable"
