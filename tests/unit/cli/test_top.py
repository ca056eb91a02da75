# SPDX-License-Identifier: Apache-2.0
"""``top``, ``gpu show --readings`` and ``show-vm --readings`` over hosts that have sent a frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.readings import gpu_rows, host_row, rate_of, reading_lines, vm_row
from orchestrator.client.client import Client
from tests.fakes.typed import Cli
from tests.fakes.world import GPU

VM = "busy"


@pytest.fixture
def vm(cli: Cli) -> Iterator[str]:
    assert cli("create-vm", VM, "--profile", "GRID T4-1Q", "--image", "guest").code == 0
    yield VM
    assert cli("delete-vm", VM, "--yes").code == 0


def test_gpus_are_shown_with_units_and_age(cli: Cli) -> None:
    header, row = cli("top", "gpus").out.splitlines()[:2]
    assert header.split()[:2] == ["HOST", "ADDRESS"]
    for cell in ("gpu1", GPU, "37 %", "2.0 of 16GiB", "61 °C", "48 W", "3s"):
        assert cell in row, cell


def test_hosts_are_the_sum_of_their_gpus(cli: Cli) -> None:
    (row,) = json.loads(cli("top", "hosts", "-o", "json").out)
    assert (row["host"], row["gpus"], row["silent"], row["use"]) == ("gpu1", 1, 0, 0.37)


def test_vms_are_shown_with_their_vgpus(cli: Cli, vm: str) -> None:
    rows = json.loads(cli("top", "vms", "-o", "json").out)
    (row,) = [row for row in rows if row["name"] == f"default/{vm}"]
    assert (row["cpus"], row["use"], row["licensed"], row["age_s"]) == (1.5, 0.21, 1.0, 3.0)
    assert f"default/{vm}" in cli("top", "vms", "--filter", vm).out
    assert f"default/{vm}" not in cli("top", "vms", "--filter", "nothing-like-it").out


def test_what_goes_after_it_was_listed_is_left_out(cli: Cli, vm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vms, hosts = Client.vms, Client.hosts
    gone: Any = {"name": "gone", "tenant": "default"}
    monkeypatch.setattr(Client, "vms", lambda self, *whose, **only: [gone, *vms(self, *whose, **only)])
    monkeypatch.setattr(Client, "hosts", lambda self: [gone, *hosts(self)])
    assert f"default/{vm}" in cli("top", "vms").out
    assert "gpu1" in cli("top", "hosts").out


def test_of_a_host_that_is_silent_no_number_of_gpus_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    silent: Any = {"host": "gpu1", "age_s": None, "readings": []}
    monkeypatch.setattr(Client, "host_readings", lambda _self, _name: silent)
    assert cli("top", "hosts").out.splitlines()[1].split() == ["gpu1", *"-" * 6, "silent"]


def test_a_gpu_and_a_vm_are_shown_with_numbers_when_asked(cli: Cli, vm: str) -> None:
    gpu = cli("gpu", "show", "gpu1", GPU, "--readings").out
    assert "read 3s ago" in gpu
    assert "gpu_utilization_ratio" in gpu
    shown = cli("show-vm", vm, "--readings").out
    assert "vgpu_sm_ratio" in shown
    assert "vgpu_sm_ratio" not in cli("show-vm", vm).out
    assert [one["kind"] for one in json.loads(cli("show-vm", vm, "--readings", "-o", "json").out)["readings"]]


def test_an_unknown_column_is_refused(cli: Cli) -> None:
    refused = cli("top", "gpus", "--sort", "nonsense")
    assert (refused.code, refused.out) == (2, "")


def test_what_was_not_read_is_no_zero() -> None:
    silent: dict[str, Any] = {
        "kind": "gpu",
        "gpu": GPU,
        "model": "T4",
        "values": [],
        "silent": "hangs",
        "history": None,
    }
    host = {"host": "gpu1", "age_s": 3.0, "readings": [silent]}
    assert gpu_rows(host)[0]["use"] is None
    assert (host_row(host)["use"], host_row(host)["silent"]) == (None, 1)
    assert vm_row({"name": "default/a", "age_s": None, "readings": []})["cpus"] is None
    assert rate_of(silent, "vm_cpu_seconds_total") is None
    assert reading_lines(3.0, [silent]) == ["", "read 3s ago", "no numbers: hangs"]
    assert "within 30 s" in reading_lines(None, [])[1]
