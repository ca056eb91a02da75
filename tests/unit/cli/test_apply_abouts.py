# SPDX-License-Identifier: Apache-2.0
"""What people say of tenants, networks, images and volumes, in a file for ``apply``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect
from orchestrator.client.client import Client
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with running_server(tmp_path / "state") as directory:
        yield directory


@pytest.fixture
def client(state: Path) -> Iterator[Client]:
    connection = connect(state)
    yield Client(connection)
    connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "other.qcow2").write_bytes(b"disk")
    return tmp_path / "wanted.yaml"


DESCRIBED = """\
schema_version: 1
tenants:
  - {name: green, description: "Nodes of team A, 3.OG", labels: {Team: a, example.org/cost: "7"}}
networks:
  - {name: red, description: the lab's, labels: {Team: a}}
  - {name: own, tenant: green, labels: {Team: b}}
images:
  - {name: other, source: /srv/other.qcow2, description: with CUDA, labels: {os: debian}}
volumes:
  - {name: sets, tenant: green, size: 1GiB, description: of 2026, labels: {kind: images}}
"""


def test_descriptions_and_labels_are_in_a_file_for_every_noun_that_has_them(
    cli: Cli, client: Client, file: Path
) -> None:
    text = DESCRIBED.replace("/srv/", f"{file.parent}/")
    file.write_text(text)
    assert cli("apply", "-f", str(file)).code == 0
    things = (
        client.tenant("green"), client.network("red", None), client.network("own", "green"),
        client.image("other"), client.volume("sets", "green"),
    )  # fmt: skip
    assert [(one["description"], one["labels"]) for one in things] == [
        ("Nodes of team A, 3.OG", {"Team": "a", "example.org/cost": "7"}), ("the lab's", {"Team": "a"}),
        ("", {"Team": "b"}), ("with CUDA", {"os": "debian"}), ("of 2026", {"kind": "images"}),
    ]  # fmt: skip
    assert cli("plan", "-f", str(file)).out == "everything is as it should be\n"
    assert client.describe_tenant("default", {"labels": {"for": "everybody"}})["labels"] == {"for": "everybody"}
    exported = cli("export").out
    for said in ("Nodes of team A, 3.OG", "the lab's", "of 2026", "kind: images", "for: everybody"):
        assert said in exported
    file.write_text(exported)
    assert cli("plan", "-f", str(file)).out == "everything is as it should be\n"


def test_what_a_file_says_of_things_is_set_in_place_and_what_it_leaves_out_stays(
    cli: Cli, client: Client, file: Path
) -> None:
    text = DESCRIBED.replace("/srv/", f"{file.parent}/")
    file.write_text(text)
    assert cli("apply", "-f", str(file)).code == 0
    client.describe_network("red", {"labels": {"more": "1"}, "description": "by hand"})
    changed = text.replace("description: the lab's, labels: {Team: a}", "labels: {Team: z}")
    file.write_text(changed.replace("description: of 2026", 'description: ""').replace("Team: b", "Team: c"))
    assert cli("diff", "-f", str(file)).out.splitlines() == [
        "~ network red", "    - labels.Team: a", "    + labels.Team: z",
        "~ network green/own", "    - labels.Team: b", "    + labels.Team: c",
        "~ volume green/sets", "    - description: of 2026", "    + description: ''",
    ]  # fmt: skip
    assert cli("apply", "-f", str(file)).code == 0
    red, sets = client.network("red", None), client.volume("sets", "green")
    assert (red["description"], red["labels"]) == ("by hand", {"Team": "z", "more": "1"})
    assert (sets["description"], sets["labels"]) == ("", {"kind": "images"})
    assert cli("plan", "-f", str(file)).code == 0
    file.write_text(text.replace("of 2026", "x" * 501))
    assert "volumes.0.description: is longer than 500 characters" in cli("plan", "-f", str(file)).err
