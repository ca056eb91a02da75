# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.gpu.device import Device
from orchestrator.sim.hardware import gpu_kind
from tests.simulated.invariants import too_much
from tests.simulated.run import MIG, Report, RunPlan, simulate
from tests.simulated.upgrades import simulate_upgrade

DC = "NVIDIA RTX Pro 6000 Blackwell DC"
RTX = "RTX PRO 6000 Blackwell Server Edition"
SHARE = 10
SHARES = 19
SHARES_AT_ONCE = 4
"""In make test: the forty seeds in which every undo that is taken out was noticed. The others run in make soak."""
LARGE = range(1000, 1010)
LARGE_AT_ONCE = 3
HOSTS = 1000
URGENT = range(2000, 2008)
TWICE = range(4000, 4008)
CLOCKS = range(3000, 3040)
CLOCKS_AT_ONCE = 6
IN_INSTANCES = range(5000, 5040)
IN_INSTANCES_AT_ONCE = 5
UPGRADES = range(6000, 6060)
UPGRADES_AT_ONCE = 8
JUMPING = RunPlan(clocks=True)
PAIRS = RunPlan(pairs=True)
SCARCE = RunPlan(hosts=2, urgent=True)


def sampled(name: str, values: Sequence[object], at_once: int) -> pytest.MarkDecorator:
    """The first ``at_once`` in make test, the rest in make soak."""
    later = [pytest.param(value, marks=pytest.mark.soak) for value in values[at_once:]]
    return pytest.mark.parametrize(name, [*values[:at_once], *later])


@pytest.mark.fault("F10", "F20", "F21", "F30", "F58", "F103")
@sampled("share", range(SHARES), SHARES_AT_ONCE)
def test_whatever_goes_wrong_the_invariants_hold_and_everything_settles(share: int) -> None:
    for seed in range(share * SHARE, (share + 1) * SHARE):
        check(simulate(seed), f"--seed {seed}")


def test_vms_for_which_others_are_stopped_settle_too() -> None:
    reports = [simulate(seed, SCARCE) for seed in URGENT]
    for report in reports:
        check(report, f"--seed {report.seed} --hosts {SCARCE.hosts} --urgent")
    assert any(" preempt_for_vm " in line and line.endswith("done") for report in reports for line in report.log)


def test_vms_with_two_vgpus_settle_too() -> None:
    reports = [simulate(seed, PAIRS) for seed in TWICE]
    for report in reports:
        check(report, f"--seed {report.seed} --pairs")
    assert any(" create_vm " in line and line.endswith("done") for report in reports for line in report.log)


@pytest.mark.fault("F101")
@sampled("seed", CLOCKS, CLOCKS_AT_ONCE)
def test_wall_clocks_that_jump_and_differ_decide_nothing(seed: int) -> None:
    check(simulate(seed, JUMPING), f"--seed {seed} --clocks")


@sampled("seed", IN_INSTANCES, IN_INSTANCES_AT_ONCE)
def test_vms_in_gpu_instances_settle_too(seed: int) -> None:
    """Alone in one or sharing it, typed and mediated. The number of vGPUs on such a GPU says nothing: three
    A100D-1-10C fit beside an A100D-2-20C, of which alone there are three, and three DC-1-8Q share one instance
    beside three DC-1-24Q, of which alone there are four. What counts is where they lie."""
    report = simulate(seed, MIG)
    check(report, f"--seed {seed} --mig")
    assert any(" create_vm " in line and line.endswith("done") for line in report.log)


@pytest.mark.fault("F103", "F115")
@sampled("seed", UPGRADES, UPGRADES_AT_ONCE)
def test_an_upgrade_of_drivers_gives_each_user_back_what_he_wants(seed: int) -> None:
    report = simulate_upgrade(seed)
    check(report, f"--seed {seed} --upgrade")
    assert any(" upgrade_driver " in line for line in report.log), (
        "its controller may die before it notes that it began"
    )


@pytest.mark.parametrize(("model", "starts_of", "broken"), [
    ("A100 PCIe 80GB", {"GRID A100D-2-20C": [0], "GRID A100D-1-10C": [2, 3, 4]}, ""),
    ("A100 PCIe 80GB", {"GRID A100D-2-20C": [0], "GRID A100D-1-10C": [1]}, "memory slot 1 is in 2"),
    ("A100 PCIe 80GB", {"GRID A100D-1-10C": [0, 0]}, "2 vGPUs of"),
    (RTX, {f"{DC}-1-24Q": [0, 3, 6], f"{DC}-1-8Q": [9] * 3}, ""),
    (RTX, {f"{DC}-1-8Q": [9] * 4}, "4 vGPUs of"),
    (RTX, {f"{DC}-1-8Q": [9], f"{DC}-1-12Q": [9]}, "2 vGPUs of"),
    (RTX, {f"{DC}-24Q": [None] * 5}, "5 vGPUs"),
])  # fmt: skip
def test_what_is_too_much_for_a_gpu_is_told_by_where_its_vgpus_lie(
    model: str, starts_of: dict[str, list[int | None]], broken: str
) -> None:
    kind = gpu_kind(shipped(), model)
    devices = [
        Device(
            kind="mdev", gpu="g", parent="g", type_name=name, name="d", gi_profile=kind.profile_of(name), gi_start=start
        )
        for name, starts in starts_of.items()
        for start in starts
    ]
    assert [text[: len(broken)] for text in too_much(kind, devices)] == ([broken] if broken else [])


@sampled("seed", LARGE, LARGE_AT_ONCE)
def test_a_thousand_hosts_settle_too(seed: int) -> None:
    check(simulate(seed, RunPlan(hosts=HOSTS)), f"--seed {seed} --hosts {HOSTS}")


def check(report: Report, again: str) -> None:
    assert report.broken == (), f"python -m tests.simulated {again}"
    assert report.operations > 0
