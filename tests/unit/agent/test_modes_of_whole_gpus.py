# SPDX-License-Identifier: Apache-2.0
"""Modes that a guest sets of a GPU which it has as a whole, and that its board keeps over a reset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Conflict, Fatal
from tests.unit.agent.test_whole_gpus import L40S, SAID, T4, Bench, give_back, take


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.fault("F26")
@pytest.mark.parametrize("gpu", [T4, L40S])
def test_the_ecc_mode_that_a_guest_has_set_is_as_before_once_its_driver_has_the_gpu(bench: Bench, gpu: str) -> None:
    bench.driver.said, bench.host.ecc[gpu] = replace(SAID, ecc=True), (True, True)
    before = bench.drivers()
    bench.do(take(gpu))
    bench.host.ecc[gpu] = (True, False)  # by its guest
    assert bench.do(give_back(gpu)).cleaned == "flr"
    assert bench.host.ecc[gpu] == (True, True)
    assert bench.drivers() == before
    assert bench.host.writes.count(("reset", "1")) == 2
    bench.do(take(gpu))
    bench.do(give_back(gpu))
    assert bench.host.writes.count(("reset", "1")) == 3, "one that no guest has set is reset once"


@pytest.mark.fault("F26")
def test_a_gpu_whose_ecc_mode_stays_otherwise_stays_with_its_vm_until_it_is_as_before(bench: Bench) -> None:
    bench.driver.said, bench.host.ecc[T4] = replace(SAID, ecc=True), (True, True)
    bench.do(take())
    bench.host.ecc[T4], bench.driver.keeps_ecc = (True, False), True
    bench.refused(give_back(), Fatal, "gpu.modes_refused")
    assert [device.owner for device in observed_on(bench.seen(T4))] == []
    bench.refused(take(vm="b"), Conflict, "vgpu.foreign")
    bench.driver.keeps_ecc = False
    assert bench.do(give_back()).cleaned == "flr", "by the reset that its mode takes"
    assert bench.do(take(vm="b")).changed
