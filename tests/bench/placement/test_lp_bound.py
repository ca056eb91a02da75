# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.placement.churn import run
from tests.bench.placement.fleets import geometry, single_gpu_hosts
from tests.bench.placement.lp_bound import most_weight
from tests.bench.placement.minimum import fits_seven_slice
from tests.bench.placement.suites_online import H100
from tests.bench.placement.workloads import MIG_MIXES, MIG_PROFILES, Arrival, arrivals, mig_kinds

ROUNDING = 1e-6


def slots(arrival: Arrival) -> float:
    return arrival.kind.slots


def fit_together(taken: tuple[Arrival, ...], gpus: int) -> bool:
    for moment in taken:
        counts = [0] * len(MIG_PROFILES)
        for other in taken:
            if other.request.now_s <= moment.request.now_s < other.depart_s:
                counts[MIG_PROFILES.index(other.request.profile)] += 1
        one, double, two, three, four, seven = counts
        if not fits_seven_slice((one, double, two, three, four, seven), gpus):
            return False
    return True


def best_by_trying(stream: list[Arrival], gpus: int) -> float:
    choices = (taken for size in range(len(stream) + 1) for taken in combinations(stream, size))
    return max(sum(map(slots, taken)) for taken in choices if fit_together(taken, gpus))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), mix=st.sampled_from(sorted(MIG_MIXES)), gpus=st.sampled_from([1, 2]))
def test_no_choice_of_requests_that_fits_beats_the_bound(seed: int, mix: str, gpus: int) -> None:
    stream = list(arrivals(mig_kinds(mix), slots=8.0 * gpus, load=2.0, count=10, seed=seed))
    bound = most_weight(stream, gpus, slots, 10.0)
    best = best_by_trying(stream, gpus)
    assert best <= bound + ROUNDING
    assert bound <= sum(map(slots, stream)) + ROUNDING


def test_the_bound_is_what_can_be_had_where_whole_requests_fill_the_gpu() -> None:
    sevens = [kind for kind in mig_kinds("uniform") if kind.profile == "7g.80gb"]
    stream = list(arrivals(tuple(sevens), slots=16.0, load=3.0, count=12, seed=4))
    bound, best = most_weight(stream, 2, slots, 10.0), best_by_trying(stream, 2)
    assert best < sum(map(slots, stream))
    assert abs(bound - best) < ROUNDING


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32), mix=st.sampled_from(sorted(MIG_MIXES)))
def test_the_bound_is_at_or_above_the_ceiling_and_every_policy_on_the_same_requests(seed: int, mix: str) -> None:
    stream = list(arrivals(mig_kinds(mix), slots=8.0 * 10, load=1.1, count=400, seed=seed))
    found = {
        policy: run(policy, list(single_gpu_hosts(10, geometry(H100, "mig"))), stream, lambda arrival: False)
        for policy in ("vgpuctl", "vgpuctl_moves", "best_fit", "ceiling", "lp_bound")
    }
    for metric in ("weighted_acceptance", "count_acceptance"):
        bound = found["lp_bound"][metric] or 0.0
        assert all((values[metric] or 0.0) <= bound + ROUNDING for values in found.values()), found
        assert bound <= 100 + ROUNDING
