# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import catalogue_geometry
from orchestrator.core.geometry.build import MIG
from orchestrator.core.geometry.cut import Cut, pack


@pytest.fixture
def a100() -> Cut:
    cut = catalogue_geometry(shipped(), "A100 PCIe 80GB", frozenset({"mig"})).cut(MIG)
    assert cut is not None
    return cut


@pytest.mark.fault("F72")
@pytest.mark.parametrize(
    "shapes,starts",
    [
        ((), ()),
        (("1g.10gb",) * 7, (0, 1, 2, 3, 4, 5, 6)),
        (("2g.20gb",) * 3, (0, 2, 4)),
        (("1g.20gb",) * 4, (0, 2, 4, 6)),
        (("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"), (0, 1, 2, 4)),
        (("4g.40gb", "3g.40gb"), (0, 4)),  # the larger one first, and not at the end
    ],
)
def test_what_fits_is_given_legal_places_that_do_not_overlap(
    a100: Cut, shapes: tuple[str, ...], starts: tuple[int, ...]
) -> None:
    found = pack(a100, shapes)
    assert found is not None
    assert sorted(shape for shape, _ in found) == sorted(shapes)
    assert tuple(start for _, start in found) == starts


@pytest.mark.parametrize("shapes", [("1g.10gb",) * 8, ("3g.40gb",) * 3, ("4g.40gb", "4g.40gb"), ("1g.10gb+me",) * 2])
def test_what_does_not_fit_is_not_placed(a100: Cut, shapes: tuple[str, ...]) -> None:
    assert pack(a100, shapes) is None
