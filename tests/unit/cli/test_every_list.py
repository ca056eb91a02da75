# SPDX-License-Identifier: Apache-2.0
"""What holds of every list, and so nobody has to try: it is sorted, named, written as CSV and as JSON."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from orchestrator.cli.tree import build
from tests.fakes.typed import Cli

LISTS = (
    "list-vms",
    "host list",
    "host check gpu1",
    "gpu list",
    "gpu map",
    "gpu racks",
    "top hosts",
    "top gpus",
    "top vms",
    "mig show gpu1",
    "profile list",
    "image list",
    "network list",
    "volume list",
    "tenant list",
    "tenant members default",
    "quota list",
    "quota show",
    "policy list",
    "token list",
    "audit list",
    "operation list",
    "context list",
    "driver bundle list",
    "driver check --all",
    "doctor",
    "capacity",
)
DRAWN = ("gpu map", "host check gpu1")
"""In the order that they have: of GPUs, and of what one requirement needs from another."""


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("words", LISTS)
def test_a_list_has_a_name_and_a_line_of_csv_for_each_of_its_rows(cli: Cli, words: str) -> None:
    names = cli(*words.split(), "-o", "name").out.splitlines()
    header, *rows = list(csv.reader(cli(*words.split(), "-o", "csv").out.splitlines()))
    assert header
    assert {len(row) for row in rows} <= {len(header)}
    assert all(name == name.strip() and name not in {"-", "*"} for name in names if name)
    assert len([name for name in names if name]) == len(rows)


@pytest.mark.parametrize("words", LISTS)
def test_a_list_is_json_and_told_by_a_path(cli: Cli, words: str) -> None:
    told = json.loads(cli(*words.split(), "-o", "json").out)
    assert isinstance(told, list) or words in DRAWN
    assert cli(*words.split(), "-o", "jsonpath=[*]").code in {0, 2, 3}


@pytest.mark.parametrize("words", [words for words in LISTS if words not in DRAWN])
def test_a_list_is_sorted_by_each_of_its_columns_and_by_no_other(cli: Cli, words: str) -> None:
    header = next(csv.reader(cli(*words.split(), "-o", "csv").out.splitlines()))
    for column in header:
        assert cli(*words.split(), "--sort", f"-{column}").code in {0, 3}, column
    refused = cli(*words.split(), "--sort", "nothing")
    assert (refused.code, refused.out) == (2, "")
    assert "[cli.sort]" in refused.err


def test_every_noun_shows_and_lists() -> None:
    root, found = build(), {}
    for name in root.list_commands(None):
        command = root.get_command(None, name)
        if hasattr(command, "commands") and name not in {"server", "simulate", "top", "metrics", "health", "power"}:
            found[name] = {"list", "show"} - set(command.commands)
    alone = {"mig": {"list"}, "driver": {"list", "show"}}
    assert {name: without for name, without in found.items() if without} == alone


@pytest.mark.parametrize("words", ["operation list", "audit list", "events cut"])
def test_a_list_that_is_cut_says_so_and_is_sorted_before(cli: Cli, words: str) -> None:
    if cli("show-vm", "cut").code:
        assert cli("create-vm", "cut", "--profile", "t4-small", "--image", "guest").code == 0
        assert cli("stop-vm", "cut").code == 0
        assert [cli("start-vm", "nobody").code for _ in range(2)] == [4, 4]
    by = "number" if words == "audit list" else "operation"
    every = cli(*words.split(), "--limit", "10000", "-o", "name", "--sort", by)
    names = every.out.splitlines()
    assert (every.err, len(names) > 1) == ("", True)
    first = cli(*words.split(), "--limit", "1", "-o", "name", "--sort", f"-{by}")
    assert first.out.splitlines() == names[-1:]
    assert first.err == f"first 1 of {len(names)}; --limit {len(names)} shows all\n"
    cut = cli(*words.split(), "--limit", "1", "-o", "name")
    assert (cut.err, len(cut.out.split())) == (f"newest 1 of {len(names)}; --limit {len(names)} shows all\n", 1)


def test_doctor_names_an_operation_that_is_stuck_with_its_command(cli: Cli) -> None:
    assert cli("create-vm", "stuck", "--profile", "t4-small", "--image", "guest").code != 0
    told = cli("doctor")
    (stuck,) = cli("operation", "list", "--state", "stuck", "--about", "default/stuck", "-o", "name").out.split()
    assert "stuck: create_vm of default/stuck: " in told.err
    assert f"'vgpuctl operation show {stuck[:8]}' has its ways out" in told.err
    assert told.code == 3
    assert stuck in cli("operation", "list", "--active", "--limit", "10000", "-o", "name").out.split()
