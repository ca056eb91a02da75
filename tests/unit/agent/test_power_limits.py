# SPDX-License-Identifier: Apache-2.0
"""Limits of power: at any time, within what the driver takes, and its own again when the GPU is given back."""

from __future__ import annotations

import pytest

from orchestrator.agent.power_limits import PowerState
from orchestrator.core.actions.host_actions import ManageGpus
from orchestrator.core.actions.vgpu_settings import SetPowerLimit
from orchestrator.core.errors import Denied, Fatal
from tests.unit.agent.bench import L40S, MDEV, T4, Bench


@pytest.fixture
def bench(bare: Bench) -> Bench:
    return bare


def now(bench: Bench) -> int:
    """In milliwatts."""
    return bench.power.now[T4].now


def limit(watts: int, gpu: str = T4) -> SetPowerLimit:
    return SetPowerLimit(gpu=gpu, watts=watts)


def test_it_is_set_while_vgpus_are_there_and_its_own_comes_back_when_asked_for(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    assert bench.do(limit(62)).changed
    assert (now(bench), bench.ledger.power_limits()) == (62_000, {T4: 62})
    assert not bench.do(limit(62)).changed
    assert bench.do(limit(0)).changed
    assert (now(bench), bench.ledger.power_limits()) == (70_000, {})


def test_a_gpu_that_is_given_back_has_its_own_limit(bench: Bench) -> None:
    bench.power.now[T4] = PowerState(least=60_000, default=68_500, most=70_000, now=68_500)
    bench.do(limit(62))
    bench.do(ManageGpus(gpus=(L40S,)))
    assert (now(bench), bench.ledger.power_limits()) == (68_500, {})


def test_a_limit_that_somebody_else_set_is_left_when_the_gpu_is_given_back(bench: Bench) -> None:
    bench.power.now[T4] = PowerState(least=60_000, default=70_000, most=70_000, now=65_000)
    bench.do(ManageGpus(gpus=(L40S,)))
    assert now(bench) == 65_000


@pytest.mark.parametrize("watts", [59, 71])
def test_what_the_driver_does_not_take_is_refused_and_not_remembered(bench: Bench, watts: int) -> None:
    with pytest.raises(Fatal) as caught:
        bench.do(limit(watts))
    assert (caught.value.code, now(bench), bench.ledger.power_limits()) == ("gpu.power_limit_outside", 70_000, {})


def test_a_gpu_without_limits_and_one_that_is_not_ours_are_refused_by_name(bench: Bench) -> None:
    with pytest.raises(Fatal) as caught:
        bench.do(limit(62, gpu=L40S))
    assert (caught.value.code, L40S in caught.value.message) == ("gpu.no_power_limit", True)
    bench.do(ManageGpus(gpus=(L40S,)))
    with pytest.raises(Denied):
        bench.do(limit(62))


def test_a_driver_that_says_yes_and_does_otherwise_is_not_believed(bench: Bench) -> None:
    bench.power.deaf = True
    with pytest.raises(Fatal) as caught:
        bench.do(limit(62))
    assert caught.value.code == "gpu.power_limit_refused"
