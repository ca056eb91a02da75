# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.client.content import open_content
from tests.fakes.several import Server, joined, simulated_fleet, until, wish
from tests.postgres.cluster import Cluster

MIB = 1024**2


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    with simulated_fleet(tmp_path, 2) as socket:
        yield socket


def add_image(server: Server, directory: Path, name: str) -> str:
    """Its SHA-256."""
    file = directory / f"{name}.raw"
    file.write_bytes(hashlib.sha256(name.encode()).digest() * (MIB // 32))
    with open_content(file) as content:
        server.client().upload_image(name, content, "raw")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def ended(client: Client, operation: str | None) -> str:
    assert operation is not None
    until(lambda: client.operation(operation)["state"] in {"done", "undone", "stuck"})
    return str(client.operation(operation)["state"])


def test_one_controller_goes_on_with_what_another_one_knew_when_it_dies(
    tmp_path: Path, postgres: Cluster, hosts: Path
) -> None:
    with joined(tmp_path, postgres.database(), hosts, ["a", "b"]) as (a, b):
        digest = add_image(a, tmp_path, "guest")
        made = b.client().create_vm(wish("made-by-b", "guest"))
        assert ended(b.client(), made["operation"]) == "done"
        # "a" may have run it: then "b" fetches the image in its own time
        until((tmp_path / "b" / "images" / f"{digest}.raw").exists, "the copy of an image that a VM was made of")

        second = add_image(a, tmp_path, "second")
        until((tmp_path / "b" / "images" / f"{second}.raw").exists, "the copy of an image that nobody has asked for")
        begun = [a.client().create_vm(wish(f"a-{number}", "second"))["operation"] for number in range(4)]
        a.kill()
        assert {ended(b.client(), operation) for operation in begun} == {"done"}
        other = b.client().create_vm(wish("after", "second"))
        assert ended(b.client(), other["operation"]) == "done"

        b.client().remove_image("demo")
        a.start()
        a.ready()
        names = {vm["name"] for vm in a.client().vms()}
        assert names == {"made-by-b", "after", *(f"a-{number}" for number in range(4))}
        gone = [a.client().delete_vm(name, "default")["operation"] for name in sorted(names)]
        assert {ended(b.client(), operation) for operation in gone} == {"done"}
        b.client().remove_image("second")
        until(lambda: not (tmp_path / "a" / "images" / f"{second}.raw").exists(), "the removal at the other one")


def test_nobody_joins_twice_with_a_token_nor_without_one(tmp_path: Path, postgres: Cluster, hosts: Path) -> None:
    url = postgres.database()
    with joined(tmp_path, url, hosts, ["a"]) as (a,):
        stranger = Server(tmp_path / "stranger", hosts)
        stranger.configure(url)
        code, _, said = stranger.run("--simulate", str(hosts), module="orchestrator.server.serve")
        assert (code, "[serve.other_key]" in said) == (5, True)
        assert not (stranger.directory / "secrets" / "database_key").exists()

        token = a.run("server", "invite", "--for", "10m")[1]
        for bad, refused in (("", "controller.token_invalid"), (token[:-9], "controller.token_invalid")):
            code, _, said = stranger.run("server", "join", said=bad)
            assert (code, refused in said) == (2, True)
        late = Server(tmp_path / "late", hosts)
        late.configure(url)
        assert late.run("server", "join", said=token)[0] == 0
        code, _, said = stranger.run("server", "join", said=token)
        assert (code, "[controller.not_invited]" in said) == (6, True)
        assert late.run("server", "join", said=token)[0] == 5

        elsewhere = Server(tmp_path / "elsewhere", hosts)
        elsewhere.configure(postgres.database())
        token = a.run("server", "invite")[1]
        code, _, said = elsewhere.run("server", "join", said=token)
        assert (code, "[controller.other_site]" in said) == (5, True)
        assert stranger.run("server", "join", said=token)[0] == 0, "the token was not used up"


def test_controllers_that_share_a_directory_of_images_fetch_nothing(
    tmp_path: Path, postgres: Cluster, hosts: Path
) -> None:
    shared = tmp_path / "shared"
    with joined(tmp_path, postgres.database(), hosts, ["a", "b"], images_directory=str(shared)) as (a, b):
        digest = add_image(a, tmp_path, "guest")
        a.kill()
        made = b.client().create_vm(wish("made-by-b", "guest"))
        assert ended(b.client(), made["operation"]) == "done"
        assert [path.name for path in shared.iterdir()] == [f"{digest}.raw"]
