# SPDX-License-Identifier: Apache-2.0
"""Which hosts may begin, whatever becomes of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.maintenance.maintenance import (
    BAD,
    ENDED,
    UNDER_WAY,
    HostPhase,
    HostTurn,
    Maintenance,
    begin_next,
    cancelled,
    failures,
    is_out,
    is_over,
    must_halt,
    paused,
    resumed,
    settled,
    waves,
)


def upgrade(hosts: int, *, most: int = 2, canary: int = 1, budget: int = 1) -> Maintenance:
    return Maintenance(
        id="u", act="upgrade",
        version="580.95.05", policy="stop", max_unavailable=most, canary=canary, failure_budget=budget,
        created_at=0.0, hosts=tuple(HostTurn(host=f"h{number}") for number in range(hosts)),
    )  # fmt: skip


def out(one: Maintenance) -> set[str]:
    return {host.host for host in one.hosts if is_out(host)}


def to(one: Maintenance, name: str, phase: HostPhase) -> Maintenance:
    return one.put(replace(one.host(name), phase=phase))


PLANS = st.builds(
    upgrade,
    st.integers(1, 12),
    most=st.integers(1, 5),
    canary=st.integers(0, 3),
    budget=st.integers(0, 3),
)


TURNS = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from(sorted(ENDED)), st.integers(0, 40), st.booleans()), max_size=50
)
"""In each: which host that is under way ends, and how; which host is away for a reason of its own; whether a person
goes on after a halt."""


@pytest.mark.fault("F114", "F115")
@given(PLANS, TURNS)
def test_never_more_hosts_are_out_than_may_be_and_none_begins_beyond_the_budget(
    plan: Maintenance, turns: list[tuple[int, HostPhase, int, bool]]
) -> None:
    begun: set[str] = set()
    for which, end, lost, goes_on in turns:
        away = frozenset({f"h{lost}"} & {one.host for one in plan.hosts})
        new = begin_next(plan, away)
        assert not begun & set(new), "no host begins twice"
        if new:
            assert failures(plan) <= plan.failure_budget
            assert len(out(plan) | set(new) | away) <= plan.max_unavailable
            assert not away & set(new)
            rest = {one.host for one in plan.hosts[plan.canary :]}
            assert all(one.phase in ENDED for one in plan.hosts[: plan.canary]) or not rest & set(new)
        begun |= set(new)
        for name in new:
            plan = to(plan, name, "emptying")
        running = [one.host for one in plan.hosts if one.phase in UNDER_WAY]
        if running:
            plan = to(plan, running[which % len(running)], end)
        plan = settled(plan, 1.0)
        if plan.state == "halted" and goes_on:
            plan = resumed(plan)
    assert (plan.state == "done") == all(one.phase in ENDED for one in plan.hosts)


@given(PLANS)
def test_without_failures_all_hosts_get_their_turn_in_as_many_steps_as_there_are_waves(plan: Maintenance) -> None:
    steps = 0
    expected = len(waves(plan))
    while new := begin_next(plan):
        steps += 1
        for name in new:
            plan = to(plan, name, "done")
    assert steps == expected
    assert settled(plan, 1.0).state == "done"


def test_the_canary_goes_alone_and_its_failure_halts_whatever_the_budget_says() -> None:
    plan = upgrade(5, most=3, canary=1, budget=4)
    assert begin_next(plan) == ("h0",)
    plan = to(plan, "h0", "swapping")
    assert begin_next(plan) == ()
    assert begin_next(to(plan, "h0", "done")) == ("h1", "h2", "h3")
    failed = settled(to(plan, "h0", "rolled_back"), 1.0)
    assert failed.state == "halted"
    assert begin_next(resumed(failed)) == ("h1", "h2", "h3")


@pytest.mark.parametrize("phase", sorted(BAD))
def test_it_halts_at_the_first_failure_beyond_the_budget_and_goes_on_when_told(phase: HostPhase) -> None:
    plan = to(upgrade(6, most=3, budget=1), "h0", "done")
    one = settled(to(plan, "h1", phase), 1.0)
    assert (one.state, must_halt(one)) == ("running", False)
    two = settled(to(one, "h2", phase), 1.0)
    assert (two.state, begin_next(two)) == ("halted", ())
    assert begin_next(resumed(two))


def test_what_was_paused_goes_on_and_what_was_cancelled_does_not() -> None:
    plan = to(upgrade(4, canary=0), "h0", "swapping")
    held = paused(plan)
    assert begin_next(held) == ()
    assert begin_next(resumed(held)) == ("h1",)
    ended = cancelled(plan)
    assert (begin_next(resumed(ended)), is_over(ended)) == ((), False)
    over = settled(to(ended, "h0", "done"), 7.0)
    assert (is_over(over), over.ended_at, over.state) == (True, 7.0, "cancelled")


def test_it_halts_when_so_many_hosts_are_lost_that_no_other_may_begin() -> None:
    plan = settled(to(upgrade(4, most=1, canary=0, budget=3), "h0", "failed"), 1.0)
    assert (plan.state, begin_next(plan)) == ("halted", ())
    assert begin_next(resumed(plan)) == ("h1",)
    assert begin_next(resumed(plan), frozenset({"h0"})) == (), "it is still away"
