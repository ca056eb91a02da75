# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm snapshot …``: taken, listed, put back, deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.cli.commands.vm_views import details
from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("snapshots")) as directory:
        yield directory


def test_a_snapshot_from_its_beginning_to_its_end(cli: Cli) -> None:
    assert cli("create-vm", "train", "-p", "t4-small").code == 0
    assert "no snapshots" in cli("vm", "snapshot", "list", "train").out
    assert cli("vm", "snapshot", "create", "train", "before").code == 0
    (row,) = json.loads(cli("vm", "snapshot", "list", "train", "-o", "json").out)
    assert (row["name"], row["taken_of"]) == ("before", "running")
    assert "while it ran" in cli("vm", "snapshot", "list", "train").out
    assert "before (while it ran)" in cli("show-vm", "train").out
    again = cli("vm", "snapshot", "create", "train", "before")
    assert (again.code, "vgpuctl vm snapshot list train" in again.err) == (5, True)
    assert cli("vm", "snapshot", "restore", "train", "befor", "--yes").code == 4
    assert cli("vm", "snapshot", "restore", "train", "before", "--yes").code == 0
    assert cli("create-vm", "twin", "-p", "t4-small", "--from-snapshot", "train/before").code == 0
    hosts = {json.loads(cli("show-vm", name, "-o", "json").out)["host"] for name in ("train", "twin")}
    assert len(hosts) == 1
    assert cli("vm", "snapshot", "delete", "train", "before", "--yes").code == 0
    assert json.loads(cli("vm", "snapshot", "list", "train", "-o", "json").out) == []
    assert cli("vm", "snapshot", "create", "train", "whole", "--volumes").code == 0
    assert "data, logs" in cli("vm", "snapshot", "list", "train").out


def test_a_server_that_says_nothing_of_snapshots_shows_vms_without(cli: Cli) -> None:
    assert cli("create-vm", "older", "-p", "t4-small").code == 0
    vm = json.loads(cli("show-vm", "older", "-o", "json").out)
    del vm["snapshots"]
    assert "snapshots" not in "".join(details(vm))


def test_a_name_that_is_none_is_refused_before_anybody_is_asked(cli: Cli) -> None:
    refused = cli("vm", "snapshot", "create", "train", "Not/One")
    assert (refused.code, "snapshot name" in refused.err) == (2, True)
    refused = cli("create-vm", "twin", "-p", "t4-small", "--from-snapshot", "train")
    assert (refused.code, "VM/SNAPSHOT" in refused.err) == (2, True)
    refused = cli("volume", "create", "twin", "--from-snapshot", "before")
    assert (refused.code, "VOLUME/SNAPSHOT" in refused.err) == (2, True)
