# SPDX-License-Identifier: Apache-2.0
"""Many VMs by one command: made by number, picked by pattern and by label."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.commands.vm import counted_names
from orchestrator.core.errors import InvalidInput
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture
def vms(cli: Cli) -> Iterator[None]:
    assert cli("create-vm", "web", "-p", "t4-small", "--count", "3", "--label", "job=web").code == 0
    assert cli("create-vm", "a", "b", "-p", "t4-small").code == 0
    yield
    assert cli("delete-vm", "*", "--yes").code == 0


def states(cli: Cli) -> dict[str, str]:
    return {vm["name"]: vm["state"] for vm in json.loads(cli("ls", "-o", "json").out)}


@pytest.mark.usefixtures("vms")
def test_vms_are_picked_by_pattern_and_by_label(cli: Cli) -> None:
    assert set(states(cli)) == {"web-1", "web-2", "web-3", "a", "b"}
    assert cli("ls", "web-[12]", "-o", "name").out.split() == ["web-1", "web-2"]
    assert cli("stop-vm", "web-*", "a", "--yes").code == 0
    assert {name for name, state in states(cli).items() if state == "stopped"} == {"web-1", "web-2", "web-3", "a"}
    assert cli("start-vm", "-l", "job=web", "--yes").code == 0
    assert cli("restart-vm", "web-?", "-l", "job=web", "--yes").code == 0
    assert {name for name, state in states(cli).items() if state == "stopped"} == {"a"}
    assert cli("delete-vm", "-l", "job=web", "web-[23]", "--yes").code == 0
    assert set(states(cli)) == {"web-1", "a", "b"}


@pytest.mark.usefixtures("vms")
@pytest.mark.parametrize(
    "words", [("delete-vm", "web-*"), ("stop-vm", "-l", "job=web"), ("extend-vm", "*", "--lease", "1h")]
)
def test_what_nobody_named_one_by_one_is_not_done_unasked(cli: Cli, words: tuple[str, ...]) -> None:
    before = states(cli)
    refused = cli(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "[cli.not_confirmed]" in refused.err
    assert "web-1, web-2, web-3" in refused.err
    assert states(cli) == before


@pytest.mark.usefixtures("vms")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("stop-vm", "nothing-*", "--yes"), "cli.nothing_picked"),
        (("delete-vm", "-l", "job=none", "--yes"), "cli.nothing_picked"),
        (("delete-vm",), "cli.usage"),
        (("stop-vm", "-l", "a b"), "label.selector_invalid"),
    ],
)
def test_what_picks_nothing_is_refused_and_changes_nothing(cli: Cli, words: tuple[str, ...], code: str) -> None:
    before = states(cli)
    refused = cli(*words)
    assert refused.code in {2, 4}
    assert f"[{code}]" in refused.err
    assert states(cli) == before


def test_numbers_stand_where_a_name_says_so() -> None:
    assert counted_names(["web"], 2) == ["web-1", "web-2"]
    assert counted_names(["gpu{n}-test"], 2) == ["gpu1-test", "gpu2-test"]
    assert counted_names(["a", "b", "a"], None) == ["a", "b"]
    for names, count in ((["a", "b"], 2), (["x{n}"], None), (["y" * 62], 10)):
        with pytest.raises(InvalidInput):
            counted_names(names, count)


def test_several_are_told_in_the_format_that_was_asked_for(cli: Cli) -> None:
    made = cli("create-vm", "n", "-p", "t4-small", "--count", "2", "-o", "name")
    assert (made.code, made.out) == (0, "n-1\nn-2\n")
    assert cli("stop-vm", "n-1", "n-2", "-o", "name").out == "n-1\nn-2\n"
    rows = list(csv.DictReader(io.StringIO(cli("start-vm", "n-1", "n-2", "-o", "csv").out)))
    assert [(row["name"], row["state"], row["deallocated"]) for row in rows] == [
        ("n-1", "running", ""), ("n-2", "running", ""),
    ]  # fmt: skip
    partial = cli("stop-vm", "n-1", "gone", "-o", "name")
    assert (partial.code, partial.out) == (4, "n-1\n")
    assert cli("delete-vm", "n-1", "n-2", "-o", "name").out == "n-1\nn-2\n"
