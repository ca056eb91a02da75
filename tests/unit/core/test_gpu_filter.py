# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.advice.gpu_map import EVERY_GPU, Cell, GpuFilter, GpuRow, GpuUse, use_of
from orchestrator.core.advice.overview import FleetUse, HostUse, RackUse, by_rack

VM = Cell(0, 2, "train", "default")


def gpu(*cells: Cell, slots: int = 4, unusable: str | None = None) -> GpuRow:
    free = sum(cell.size for cell in cells if cell.vm is None)
    return GpuRow("t4", "0000:41:00.0", "Tesla T4", 0, "cut", slots, free, cells, unusable, "r1")


@pytest.mark.parametrize(
    ("row", "use"),
    [
        (gpu(slots=0), "empty"),
        (gpu(Cell(0, 4)), "empty"),
        (gpu(VM, Cell(2, 2)), "partly"),
        (gpu(Cell(0, 4, "train")), "full"),
        (gpu(VM, Cell(2, 2), unusable="cordoned"), "unusable"),
        (gpu(slots=0, unusable="cordoned"), "unusable"),
    ],
)
def test_how_much_of_a_gpu_is_claimed(row: GpuRow, use: GpuUse) -> None:
    assert use_of(row) == use


@pytest.mark.parametrize(
    ("only", "picked"),
    [
        (EVERY_GPU, True),
        (GpuFilter(host="t4"), True),
        (GpuFilter(host="t"), False),
        (GpuFilter(models={"Tesla T4"}), True),
        (GpuFilter(models={"L40S"}), False),
        (GpuFilter(use="partly"), True),
        (GpuFilter(use="full"), False),
        (GpuFilter(host="t4", models={"Tesla T4"}, use="full"), False),
        (GpuFilter(rack="r1"), True),
        (GpuFilter(rack="r2"), False),
    ],
)
def test_all_that_is_asked_of_a_gpu_must_hold(only: GpuFilter, picked: bool) -> None:
    assert only.picks(gpu(VM, Cell(2, 2))) is picked


@pytest.mark.parametrize(
    "only",
    [
        EVERY_GPU,
        GpuFilter(models={"Tesla T4"}),
        GpuFilter(models={"L4"}),
        GpuFilter(use="partly"),
        GpuFilter(use="unusable"),
    ],
)
def test_gpus_that_a_filter_picks_are_counted_without_their_rows(only: GpuFilter) -> None:
    rows = [gpu(VM, Cell(2, 2)), gpu(Cell(0, 4, "train")), gpu(slots=0), gpu(Cell(0, 4), unusable="broken")]
    use = FleetUse.added(FleetUse.of([one_gpu]) for one_gpu in rows)
    assert use.how_many(only) == sum(map(only.picks, rows))
    assert (use.by_model(), use.by_tenant()) == (FleetUse.of(rows).by_model(), FleetUse.of(rows).by_tenant())


def test_what_is_gone_leaves_no_trace_in_the_sum() -> None:
    of_one, of_other = (FleetUse.of([gpu(Cell(0, 1, name, name), Cell(1, 9), slots=10)] * 3) for name in ("a", "b"))
    left = FleetUse.added([FleetUse.added([of_one, of_other])], gone=[of_one])
    assert (left.by_model(), left.by_tenant()) == (of_other.by_model(), of_other.by_tenant())
    nothing = FleetUse.added([left], gone=[of_other])
    assert (nothing.by_model(), nothing.by_tenant()) == ((), {})


def test_hosts_stand_by_rack_those_without_last_and_those_without_gpus_nowhere() -> None:
    of_host = FleetUse.of([gpu(VM, Cell(2, 2)), gpu(slots=0), gpu(Cell(0, 4), unusable="broken")]).of_host()
    assert of_host == (3, 1, 1, 0.5)
    hosts = [
        HostUse("a", None, "ready", *of_host),
        HostUse("b", "r2", "ready", *of_host),
        HostUse("c", "r1", "unreachable", 2, 0, 2, 0.0),
        HostUse("d", "r2", "ready", 0, 0, 0, 0.0),
        HostUse("e", "r2", "ready", 1, 0, 0, 1.0),
    ]
    assert by_rack(hosts) == (
        RackUse("r1", ("c",), ("unreachable",), (2,), (0,), (2,), (0.0,)),
        RackUse("r2", ("b", "e"), ("ready", "ready"), (3, 1), (1, 0), (1, 0), (0.5, 1.0)),
        RackUse(None, ("a",), ("ready",), (3,), (1,), (1,), (0.5,)),
    )
