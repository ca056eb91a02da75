# SPDX-License-Identifier: Apache-2.0
"""Members of fabric partitions where the fabric manager's numbers are not the module ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.hosts.snapshot_rules import checked
from tests.fakes.fabric_host import GPUS, MODULES
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4
from tests.fakes.fmpm_program import fmpm
from tests.unit.agent.test_fabric import Bench, activation

A100, H100 = "20b2", "2330"


@pytest.fixture
def device() -> str:
    return A100


@pytest.fixture
def permuted(tmp_path: Path, device: str) -> Iterator[Bench]:
    """An HGX A100: the fabric manager's number 1 is module 8, 2 is 7 ..."""
    with tempfile.TemporaryDirectory() as short:
        made = Bench(tmp_path, Path(short) / "s", device)
        for gpu in made.fabric.fabric["gpus"]:
            gpu["physical_id"] = 9 - gpu["module_id"]
        made.fabric.restart()
        yield made
        made.fabric.stop()


def believed(fabric: FabricSnapshot) -> FabricSnapshot:
    """By a controller, with all else that the host tells."""
    told = replace(snapshot_of(FakeMachine(machine_id="m", gpus=[t4("0000:41:00.0")])), fabric=fabric)
    found = checked(told).fabric
    assert found is not None
    return found


def test_members_are_joined_by_identity_and_not_by_number(permuted: Bench) -> None:
    seen = permuted.seen()
    single = {one.id: one.modules for one in seen.partitions if len(one.modules) == 1}
    assert (single[7], single[14], seen.problem) == ((8,), (1,), None)
    wrong = permuted.take(7)  # as if the fabric manager's number 1 were module 1
    permuted.refused(wrong, Fatal, "fabric.partition_differs")
    right = activation(14, (1,))
    assert permuted.do(right).changed
    assert permuted.fabric.active() == {14}
    assert [one.modules for one in permuted.seen().partitions if one.active] == [(1,)]


def test_members_that_were_never_told_are_refused_by_name(permuted: Bench) -> None:
    permuted.take(7)
    action = activation(14, (1,))
    permuted.refused(action, Conflict, "fabric.members_unknown")
    assert permuted.fabric.active() == set()
    problem = permuted.seen().problem
    assert problem is not None
    assert "members 8 are" in problem
    assert believed(permuted.seen()).problem == problem


def test_a_board_of_which_nothing_was_ever_told_costs_no_more_than_its_fabric(permuted: Bench) -> None:
    for module in range(1, 9):
        permuted.take(module)
    seen = believed(permuted.seen())
    assert seen.problem is not None
    assert [one.id for one in seen.partitions] == []


@pytest.mark.parametrize("device", [A100, H100])
def test_a_gpu_that_its_driver_does_not_list_costs_no_more_than_the_fabric(permuted: Bench) -> None:
    lost = GPUS[MODULES.index(8)]
    permuted.driver.lost.add(lost)
    seen = believed(permuted.seen())
    assert seen.problem == f"the fabric manager has {lost}, of which the NVIDIA driver tells no module id"
    assert {module for one in seen.partitions for module in one.modules} == set(range(1, 8))


@pytest.mark.parametrize("device", [H100])
def test_numbers_that_are_not_module_ids_of_some_are_those_of_none(permuted: Bench) -> None:
    permuted.take(7)
    seen = believed(permuted.seen())
    assert {module for one in seen.partitions for module in one.modules} == set(range(2, 9))
    permuted.refused(activation(14, (1,)), Conflict, "fabric.members_unknown")


@pytest.mark.parametrize("told", ["uuid", "pciBusId"])
def test_uuid_or_address_alone_is_enough(permuted: Bench, told: str) -> None:
    other = {"uuid": "pciBusId", "pciBusId": "uuid"}[told]
    permuted.fabric.program(
        "import json\n"
        f"said = json.loads(subprocess.run([{str(fmpm())!r}, *sys.argv[1:]], capture_output=True).stdout)\n"
        f"[gpu.update({other}='') for row in said['partitionInfo'] for gpu in row['gpuInfo']]\n"
        "print(json.dumps(said))"
    )
    assert [one.modules for one in permuted.seen().partitions if one.id == 7] == [(8,)]
