# SPDX-License-Identifier: Apache-2.0
"""Files that a command or program names: it reads them itself, and the server keeps what it was sent, whole or not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.api.file_bodies import MAX_AT_ONCE
from orchestrator.client.client import Client
from orchestrator.client.connection import Connection
from orchestrator.client.content import open_content
from orchestrator.client.http import UnixHttp
from orchestrator.client.location import SOCKET_NAME
from orchestrator.client.opening import open_async_client, open_client
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, Retryable
from tests.fakes.driver_files import Signer, run_file
from tests.fakes.running import running_server
from tests.fakes.several import until

PROGRAM = Path(sys.executable).with_name("vgpuctl")
DISK = b"disk" * (1024 * 1024)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("uploads"), module="tests.contract.api.plane_server") as directory:
        yield directory


@pytest.fixture
def here(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    return state


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A raw disk of four MiB, of a content that no other test has."""
    path = tmp_path / "disk.raw"
    path.write_bytes(os.urandom(512) + DISK)
    return path


def _kept(state: Path) -> set[str]:
    return {path.name for path in (state / "images").iterdir()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.usefixtures("here")
def test_a_program_sends_an_image_and_once_only(state: Path, disk: Path) -> None:
    told: list[tuple[str, int]] = []
    with open_client() as client:
        with open_content(disk, progress=lambda way, done: told.append((way, done))) as content:
            image = client.upload_image("one", content, "raw")
        assert (image["sha256"], image["size_bytes"]) == (_digest(disk), disk.stat().st_size)
        assert (state / "images" / f"{image['sha256']}.raw").read_bytes() == disk.read_bytes()
        assert told[-1] == ("sent", disk.stat().st_size)
        told.clear()
        with open_content(disk, progress=lambda way, done: told.append((way, done))) as content:
            assert client.upload_image("one", content, "raw") == image
        assert {way for way, _ in told} == {"read"}, "what is there was sent again"
        disk.write_bytes(DISK)
        with open_content(disk) as content, pytest.raises(Conflict) as caught:
            client.upload_image("one", content, "raw")
        assert caught.value.code == "image.exists"
        assert client.image("one") == image


@pytest.mark.usefixtures("here")
def test_an_image_of_a_tenant_is_sent_shared_and_removed_on_its_own_path(state: Path, disk: Path) -> None:
    with open_client() as client:
        with open_content(disk) as content:
            image = client.upload_image("theirs", content, "raw", "default")
        assert (image["name"], image["tenant"], image["shared"]) == ("theirs", "default", False)
        assert client.image("theirs", "default") == image
        with pytest.raises(NotFound):
            client.image("theirs")
        words = ["--format", "raw", "--tenant", "default", "--shared", "-o", "json"]
        said = subprocess.run(
            [PROGRAM, "image", "add", "theirs", disk, *words], capture_output=True, text=True, check=True
        )
        assert json.loads(said.stdout) == {**image, "shared": True}
        assert {**image, "shared": True} in client.images()
        refused = subprocess.run(
            [PROGRAM, "image", "add", "url", "https://example.com/x.qcow2", "--tenant", "default"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (refused.returncode, "[image.source_refused]" in refused.stderr) == (2, True)
        client.remove_image("theirs", "default")
        assert f"{_digest(disk)}.raw" not in _kept(state)


@pytest.mark.usefixtures("here")
def test_with_asyncio_files_go_side_by_side(state: Path, tmp_path: Path) -> None:
    signer, driver = Signer(), run_file("NVIDIA-Linux-x86_64-580.65.05-vgpu-kvm")
    (tmp_path / "driver.run").write_bytes(driver)
    disks = [tmp_path / f"async-{number}" for number in range(3)]
    for path in disks:
        path.write_bytes(os.urandom(512) + DISK)

    async def work() -> tuple[list[str], str]:
        async with open_async_client() as client:

            async def send(path: Path) -> str:
                with open_content(path) as content:
                    image = await client.upload_image(path.name, content, "raw")
                    return image["sha256"]

            with open_content(tmp_path / "driver.run") as content:
                bundle = await client.upload_driver_bundle(content, signer.sign(driver), signer.key)
            return list(await asyncio.gather(*map(send, disks))), bundle["version"]

    assert asyncio.run(work()) == ([_digest(path) for path in disks], "580.65.05")
    assert {f"{_digest(path)}.raw" for path in disks} <= _kept(state)


@pytest.mark.usefixtures("here")
def test_with_asyncio_nothing_of_a_refused_file_is_sent(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(1 << 30)

    async def work() -> None:
        async with open_async_client() as client:
            with open_content(path, progress=lambda _, done: sent.append(done)) as content:
                await client.connection.upload("/v1/images/bad/content", content, {"format": "raw", "sha256": "x"})

    sent: list[int] = []
    with pytest.raises(InvalidInput) as caught:
        asyncio.run(work())
    assert caught.value.code == "image.digest_invalid"
    assert sent == []


def _refused_halfway(state: Path, disk: Path, **said: str) -> str:
    """A file that does not go with what was said of it. The code of the refusal."""
    client = Client(Connection(UnixHttp(state / SOCKET_NAME, 60)))
    before = _kept(state)
    with open_content(disk) as content, pytest.raises(InvalidInput) as caught:
        client.connection.upload("/v1/images/bad/content", content, {"format": "raw", **said})
    assert _kept(state) == before
    assert "bad" not in [image["name"] for image in client.images()]
    return caught.value.code


def test_another_digest_and_another_format_are_refused_and_nothing_is_kept(state: Path, disk: Path) -> None:
    assert _refused_halfway(state, disk, sha256="0" * 64) == "image.digest_differs"
    assert _refused_halfway(state, disk, sha256=_digest(disk), format="qcow2") == "image.unsafe"
    assert _refused_halfway(state, disk, sha256="x") == "image.digest_invalid"


def test_a_digest_that_was_expected_is_asked_for_before_anything_is_sent(disk: Path) -> None:
    with open_content(disk, sha256="0" * 64) as content, pytest.raises(InvalidInput) as caught:
        content.digest()
    assert caught.value.code == "file.digest_differs"
    assert _digest(disk) not in caught.value.message


def test_a_file_that_becomes_shorter_is_not_sent_as_something_else(state: Path, disk: Path) -> None:
    client = Client(Connection(UnixHttp(state / SOCKET_NAME, 60)))
    before = _kept(state)
    with open_content(disk) as content:
        content.digest()
        os.truncate(disk, 1024)
        with pytest.raises(InvalidInput) as caught:
            client.connection.upload("/v1/images/short/content", content, {"sha256": "0" * 64, "format": "raw"})
    assert caught.value.code == "file.changed"
    _until_kept(state, before)
    assert client.images() is not None, "the connection is opened anew"


def _until_kept(state: Path, wanted: set[str]) -> None:
    until(lambda: _kept(state) == wanted, f"that of {_kept(state)} the others go")


def _halves(state: Path, number: int) -> list[socket.socket]:
    """So many clients that send half of a file and nothing more."""
    opened = []
    for _ in range(number):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.settimeout(60)
        one.connect(str(state / SOCKET_NAME))
        target = f"/v1/images/half/content?sha256={'0' * 64}&format=raw"
        head = f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 2048\r\n"
        one.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert one.recv(64).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"x" * 1024)
        opened.append(one)
    return opened


def test_who_falls_silent_holds_none_of_the_threads_that_serve_others(state: Path, disk: Path) -> None:
    before = _kept(state)
    silent = _halves(state, MAX_AT_ONCE)
    client = Client(Connection(UnixHttp(state / SOCKET_NAME, 60)))
    until(lambda: len(_kept(state) - before) == MAX_AT_ONCE, "a file for each")
    for _ in range(50):
        client.vms("default")
    with open_content(disk) as content, pytest.raises(Retryable) as caught:
        client.upload_image("late", content, "raw")
    assert caught.value.code == "server.files_busy"
    for one in silent:
        one.close()
    _until_kept(state, before)
    with open_content(disk) as content:
        client.upload_image("late", content, "raw")


def test_a_server_that_ends_waits_for_no_sender_and_sweeps_what_a_crash_left(tmp_path: Path) -> None:
    with running_server(tmp_path, module="tests.contract.api.plane_server"):
        (tmp_path / "images" / "0123.part").write_bytes(b"half")
        silent = _halves(tmp_path, 1)
    assert b"file.not_taken" in silent[0].recv(65536)
    with running_server(tmp_path, module="tests.contract.api.plane_server"):
        assert [name for name in _kept(tmp_path) if name.endswith(".part")] == []


def _run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(state), "VGPUCTL_STATE": str(state), "TERM": "xterm"}
    return subprocess.run(
        [PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )


def test_the_command_reads_the_file_and_the_server_reads_none(state: Path, tmp_path: Path, disk: Path) -> None:
    (tmp_path / "linked").symlink_to(disk)
    done = _run(state, "image", "add", "linked", str(tmp_path / "linked"), "--format", "raw")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert _digest(disk) in done.stdout
    signer, driver = Signer(), run_file("NVIDIA-Linux-x86_64-580.95.02-vgpu-kvm")
    files = {"driver.run": driver, "sig": signer.sign(driver).encode(), "key": signer.key.encode()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    named = (str(tmp_path / "driver.run"), "--signature", str(tmp_path / "sig"), "--key", str(tmp_path / "key"))
    done = _run(state, "driver", "bundle", "add", *named)
    assert (done.returncode, "580.95.02" in done.stdout) == (0, True), done.stderr
    absent = _run(state, "image", "add", "absent", str(tmp_path / "absent"))
    assert (absent.returncode, "there is no such file" in absent.stderr) == (2, True)


@pytest.mark.usefixtures("here")
def test_with_asyncio_a_file_that_is_given_up_is_sent_no_further(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    before, sent = _kept(state), list[int]()

    async def work() -> None:
        async with open_async_client() as client:
            with open_content(path, progress=lambda _, done: sent.append(done)) as content:
                target, said = "/v1/images/given-up/content", {"format": "raw", "sha256": "0" * 64}
                sending = asyncio.create_task(client.connection.upload(target, content, said))
                while not sent and not sending.done():
                    await asyncio.sleep(0.01)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending

    asyncio.run(work())
    assert 0 < max(sent) < 1 << 29
    _until_kept(state, before)
