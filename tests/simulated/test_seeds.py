# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulated.run import Report, RunPlan, simulate

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


@sampled("seed", LARGE, LARGE_AT_ONCE)
def test_a_thousand_hosts_settle_too(seed: int) -> None:
    check(simulate(seed, RunPlan(hosts=HOSTS)), f"--seed {seed} --hosts {HOSTS}")


def check(report: Report, again: str) -> None:
    assert report.broken == (), f"python -m tests.simulated {again}"
    assert report.operations > 0
