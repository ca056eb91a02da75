# SPDX-License-Identifier: Apache-2.0
"""Files for ``plan`` and ``apply`` at a server that places VMs on hosts as it does on real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import client_of
from tests.fakes.simulated import serving_fleet, wish
from tests.fakes.typed import Cli

FLEET = """\
groups:
  - {name: t4, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("site")
    with serving_fleet(directory, FLEET) as client:
        client.create_volume({"name": "data", "tenant": "default", "size_bytes": 1 << 30})
        client.wait(client.create_vm(wish("writer", "GRID T4-4Q", volumes=["data"])))
        yield directory / "state"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wanted.yaml"


REFUSED = {
    "profile: 'gpu:9'": "no host of this pool has 9 GPUs (the most: 2) [vm.never_fits]",
    "profile: t4-4q, memory: 900GiB": "can ever hold 900GiB of memory [vm.never_fits]",
    "profile: t4-4q, volumes: [data]": "volume data is attached to VM writer [volume.attached]",
    "profile: t4-4q, volumes: ['data:ro']": "volume data is attached to VM writer [volume.attached]",
    "profile: t4-4q, volumes: ['newv:ro']": "no VM has had volume newv: nothing is on it [volume.empty]",
    "profile: t4-4q, from_backup: abcdef12": "no backup is called 'abcdef12' [backup.unknown]",
    "profile: t4-4q, from_snapshot: writer/none": "[snapshot.unknown]",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_plan_says_which_vm_would_not_be_created_and_why(cli: Cli, file: Path, words: str) -> None:
    file.write_text(
        "schema_version: 1\nvolumes:\n  - {name: newv, size: 1GiB}\nvms:\n"
        f"  - {{name: one, image: demo, {words}}}\n  - {{name: two, image: demo, profile: t4-4q, volumes: [newv]}}\n"
    )
    plan = cli("plan", "-f", str(file), "-o", "json")
    rows = {row["name"]: (row["action"], row["reason"]) for row in plan.json()}
    assert (plan.code, rows.pop("default/one")[0]) == (3, "refuse")
    assert rows == {"default/newv": ("add", None), "default/two": ("add", None)}
    for command in ("plan", "diff"):
        assert REFUSED[words] in " ".join(cli(command, "-f", str(file)).out.split())


def test_a_plan_that_makes_room_refuses_nothing_for_the_want_of_it(cli: Cli, state: Path, file: Path) -> None:
    client = client_of(state)
    client.wait(client.create_vm(wish("whole", "GRID T4-16Q", label="team")))
    file.write_text("schema_version: 1\nlabel: team\nvms:\n  - {name: next, image: demo, profile: t4-16q}\n")
    actions = {words: cli("plan", *words, "-f", str(file), "-o", "json").json() for words in ((), ("--prune",))}
    assert [row["action"] for row in actions[()]] == ["refuse"]
    assert [row["action"] for row in actions[("--prune",)]] == ["delete", "add"]


def test_nothing_is_said_of_other_changes_when_none_was_made(cli: Cli, file: Path) -> None:
    entry = "{name: %s, image: demo, profile: t4-4q, volumes: [data]}"
    file.write_text(f"schema_version: 1\nvms:\n  - {entry % 'one'}\n  - {entry % 'two'}\n")
    done = cli("apply", "-f", str(file))
    assert (done.code, "2 of 2 changes could not be made" in done.err, "the others" in done.err) == (5, True, False)


def test_a_vm_that_names_no_image_has_the_one_that_create_vm_would_take(cli: Cli, state: Path, file: Path) -> None:
    entry = "{name: plain, profile: t4-4q, state: stopped}"
    file.write_text(f"schema_version: 1\nvms:\n  - {entry}\n")
    assert cli("apply", "-f", str(file)).code == 0
    assert client_of(state).vm("plain", "default")["image"] == "demo"
    other = file.with_name("other.qcow2")
    other.write_bytes(b"disk")
    file.write_text(
        f"schema_version: 1\nimages:\n  - {{name: other, source: {other}}}\n"
        f"vms:\n  - {entry}\n  - {{name: more, profile: t4-4q}}\n"
    )
    several = cli("plan", "-f", str(file))
    assert (several.code, "[image.choose]" in several.err, "demo, other" in several.err) == (2, True, True)
    file.write_text(file.read_text().replace("more, profile: t4-4q", "more, profile: t4-4q, image: demo"))
    rows = cli("plan", "-f", str(file), "-o", "json").json()
    assert [(row["kind"], row["name"]) for row in rows] == [("image", "other"), ("vm", "default/more")]
