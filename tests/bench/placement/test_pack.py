# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.geometry.cut import Taken
from orchestrator.core.placement.engine import PlacementEngine
from tests.bench.placement.batch import place_batch
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.minimum import fewest_seven_slice
from tests.bench.placement.pack import pack_seven_slice
from tests.bench.placement.test_minimum import SEVEN
from tests.unit.geometry.test_cuts import cut_of
from tests.unit.placement.fleets import ask, broken_rules, gpus, host

SIZES = (1, 2, 2, 4, 4, 8)


@given(st.tuples(*(st.integers(0, 40) for _ in SEVEN)))
def test_the_packing_is_legal_complete_and_as_small_as_can_be(counts: tuple[int, int, int, int, int, int]) -> None:
    cut = cut_of("H100 SXM5 80GB", "mig")
    layouts = pack_seven_slice(counts)
    assert len(layouts) == fewest_seven_slice(counts)
    for layout in layouts:
        cut.classify(Taken(SEVEN[kind], start, SIZES[kind]) for kind, start in layout)
    found = Counter(kind for layout in layouts for kind, _ in layout)
    assert tuple(found[kind] for kind in range(6)) == counts


def test_a_batch_takes_the_fewest_gpus_and_leaves_out_what_does_not_fit() -> None:
    engine = PlacementEngine([host(f"h{i}", gpus("H100 SXM5 80GB", 1, "mig"), vcpus=8) for i in range(6)])
    batch = [ask(f"v{i}", SEVEN[i % 6], vcpus=1) for i in range(12)]
    placed = place_batch(engine, batch)
    assert set(placed) == {request.vm_id for request in batch}
    assert engine.fleet.active == Ceiling(engine.fleet, engine.counts).minimum_gpus()
    more = place_batch(engine, [ask(f"w{i}", "7g.80gb", vcpus=1) for i in range(9)])
    assert len(more) == 6 - engine.fleet.active + len(more)
    assert broken_rules(engine) == []


def test_a_batch_falls_back_to_one_by_one_where_hosts_lack_cpu() -> None:
    engine = PlacementEngine([host(f"h{i}", gpus("H100 SXM5 80GB", 1, "mig"), vcpus=4) for i in range(4)])
    placed = place_batch(engine, [ask(f"v{i}", "1g.10gb", vcpus=4) for i in range(4)])
    assert len({placement.host_id for placement in placed.values()}) == 4
    assert broken_rules(engine) == []
