# SPDX-License-Identifier: Apache-2.0
"""Members of fabric partitions where the fabric manager's numbers are not the module ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal
from tests.fakes.fmpm_program import fmpm
from tests.unit.agent.test_fabric import Bench, activation

A100 = "20b2"


@pytest.fixture
def permuted(tmp_path: Path) -> Iterator[Bench]:
    """An HGX A100: the fabric manager's number 1 is module 8, 2 is 7 ..."""
    with tempfile.TemporaryDirectory() as short:
        made = Bench(tmp_path, Path(short) / "s", A100)
        for gpu in made.fabric.fabric["gpus"]:
            gpu["physical_id"] = 9 - gpu["module_id"]
        made.fabric.restart()
        yield made
        made.fabric.stop()


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
