# SPDX-License-Identifier: Apache-2.0
"""``top``, ``gpu show --readings`` and ``show-vm --readings`` over hosts that have sent a frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.cli.readings import GPU_COLUMNS, HOST_COLUMNS, VM_COLUMNS, reading_lines
from orchestrator.cli.table import Column
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


def test_the_first_rows_are_chosen_before_others_are_left_out(cli: Cli, vm: str) -> None:
    assert cli("create-vm", "aside", "--profile", "GRID T4-1Q", "--image", "guest").code == 0
    every = [row["name"] for row in json.loads(cli("top", "vms", "--sort", "-name", "-o", "json").out)]
    first = cli("top", "vms", "--sort", "-name", "--limit", "1", "-o", "json")
    assert [row["name"] for row in json.loads(first.out)] == every[:1]
    assert first.err == f"first 1 of {len(every)}; --limit {len(every)} shows all\n"
    refused = cli("top", "vms", "--sort", "temp", "--limit", "1")
    assert (refused.code, refused.out, "request.sort" in refused.err) == (2, "", True)
    assert cli("delete-vm", "aside", "--yes").code == 0


@pytest.mark.parametrize("column", [*GPU_COLUMNS, *HOST_COLUMNS, *VM_COLUMNS])
def test_every_column_is_something_that_the_server_sorts_by(cli: Cli, column: Column) -> None:
    noun = "gpus" if column in GPU_COLUMNS else "hosts" if column in HOST_COLUMNS else "vms"
    shown = cli("top", noun, "--limit", "1", "--sort", f"-{column.header.lower()}")
    assert shown.code == 0, shown.err


def test_a_model_that_no_gpu_has_is_refused(cli: Cli) -> None:
    assert "gpu1" in cli("top", "gpus", "--model", "t4").out
    refused = cli("top", "gpus", "--model", "T5")
    assert (refused.code, refused.out) == (4, "")
    assert refused.err == cli("gpu", "list", "--model", "T5").err


def test_what_was_not_read_is_told_with_its_reason() -> None:
    silent: dict[str, Any] = {"kind": "gpu", "gpu": GPU, "model": "T4", "values": [], "silent": "hangs"}
    assert reading_lines(3.0, [silent]) == ["", "read 3s ago", "no numbers: hangs"]
    assert "within 30 s" in reading_lines(None, [])[1]


def test_numbers_are_shown_with_their_digits_dates_as_dates_and_a_licence_as_yes_or_no(cli: Cli, vm: str) -> None:
    numbers = {"vm_network_sent_bytes_total": 202860927.4, "vgpu_license_expiry_timestamp_seconds": 1_796_000_000.0,
               "vgpu_sm_ratio": 0.1563995, "vm_vcpus": 4.0}  # fmt: skip
    values = [{"quantity": name, "label": "", "number": number} for name, number in numbers.items()]
    told = [line.split()[2] for line in reading_lines(3.0, [{"values": values}])[3:]]
    assert told == ["202860927", "2026-11-30", "0.156399", "4"]
    far = [{"quantity": "vgpu_license_expiry_timestamp_seconds", "label": "", "number": 9e23}]
    assert reading_lines(3.0, [{"values": far}])[3].split()[2].isdigit()
    assert "yes" in cli("top", "vms").out.splitlines()[1].split()
