# SPDX-License-Identifier: Apache-2.0
"""Two names of one content: one is added while the other is removed, again and again, at a real server."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.client.content import open_content
from tests.fakes.several import Server, simulated_fleet
from tests.postgres.cluster import Cluster

ROUNDS = 200
MIB = 1024**2
CONTENT = b"\xaa" * MIB


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        one = Server(tmp_path / "a", stack.enter_context(simulated_fleet(tmp_path, 1)))
        if request.param == "postgresql":
            cluster: Cluster = request.getfixturevalue("postgres")
            one.configure(cluster.database())
        else:
            one.directory.mkdir()
        stack.callback(one.kill)
        one.start()
        one.ready()
        yield one


def test_an_image_that_is_listed_has_its_file_whatever_is_removed_meanwhile(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "guest.raw"
    source.write_bytes(CONTENT)
    file = server.directory / "images" / f"{hashlib.sha256(CONTENT).hexdigest()}.raw"
    reader, busy = server.client(), server.client()
    ended = threading.Event()

    def add(name: str) -> None:
        with open_content(source) as content:
            server.client().upload_image(name, content, "raw")

    def remove(name: str) -> None:
        server.client().remove_image(name)

    def write() -> None:
        """As a busy site does: others wait for the database."""
        while not ended.is_set():
            busy.set_guest_driver("demo", "550.90.07")
            busy.set_guest_driver("demo", None)

    with ThreadPoolExecutor(3) as pool:
        writing = pool.submit(write)
        try:
            add("image-0")
            for number in range(ROUNDS):
                both = pool.submit(add, f"image-{number + 1}"), pool.submit(remove, f"image-{number}")
                for one in both:
                    one.result()
                assert [image["name"] for image in reader.images() if image["name"] != "demo"] == [
                    f"image-{number + 1}"
                ]
                assert file.is_file(), f"round {number}"
        finally:
            ended.set()
        writing.result()
    remove(f"image-{ROUNDS}")
    assert not file.exists(), "nobody names it any more"
