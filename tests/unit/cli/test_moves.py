# SPDX-License-Identifier: Apache-2.0
"""``show-vm --moves``: a row for each host, each limit once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.moves import move_lines
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("moves")) as directory:
        yield directory


@pytest.fixture(autouse=True)
def vm(cli: Cli) -> None:
    """The same each time."""
    assert cli("create-vm", "train", "-p", "t4-small").code == 0


def test_each_host_has_a_row_and_each_limit_its_ways_and_its_cure(cli: Cli) -> None:
    shown = cli("show-vm", "train", "--moves").out
    rows = [line.split() for line in shown.splitlines() if line.startswith(("(any", "gpu"))]
    assert [row[:1] for row in rows] == [["(any"], ["gpu1"], ["gpu2"]]
    assert "live: ECC is off, now on (cure: 'nvidia-smi -e 1' and a reset of the GPU)" in " ".join(shown.split())


def test_hosts_are_picked(cli: Cli) -> None:
    only = json.loads(cli("show-vm", "train", "--moves", "--host", "gpu2", "-o", "json").out)["moves"]["hosts"]
    assert [host["host"] for host in only] == ["gpu2"]
    assert json.loads(cli("show-vm", "train", "--moves", "--legal", "live", "-o", "json").out)["moves"]["hosts"] == []
    assert "moves" not in json.loads(cli("show-vm", "train", "-o", "json").out)


@pytest.mark.parametrize("option", [("--host", "gpu1"), ("--legal", "live")])
def test_a_filter_of_moves_needs_them(cli: Cli, option: tuple[str, str]) -> None:
    refused = cli("show-vm", "train", *option)
    assert (refused.code, "add --moves" in refused.err) == (2, True)


def test_a_host_that_is_not_there_is_named(cli: Cli) -> None:
    assert cli("show-vm", "train", "--moves", "--host", "nowhere").code == 4


def test_what_rules_every_way_out_is_said_once() -> None:
    limit = {"code": "move.adopted", "message": "its disks are not ours", "cure": None}
    verdicts = [
        {"kind": kind, "legal": False, "limits": [limit]} for kind in ("live", "suspended", "hibernated", "cold")
    ]
    elsewhere = {"host": "gpu9", "is_its_own": False, "verdicts": verdicts}
    rows = move_lines({"own": verdicts, "hosts": [elsewhere]})
    assert ["every way: its disks are not ours" in row for row in rows[-2:]] == [True, False]
    assert rows[-1].endswith("as (any other host)")
