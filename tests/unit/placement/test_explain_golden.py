# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.advice.explain import explain, for_tenant
from orchestrator.core.errors import NotFound
from tests.fakes.drawn import drawn_explanation, drawn_for_tenant
from tests.unit.placement.explain_cases import CASES
from tests.unit.placement.golden_text import GOLDEN, assert_golden

TOLD = ("fits", "one_size_per_gpu")


@pytest.mark.parametrize("name", CASES)
def test_an_explanation_reads_as_agreed(name: str) -> None:
    case = CASES[name]
    explanation = explain(case.request, case.hosts)
    assert_golden(name, drawn_explanation(explanation))


@pytest.mark.parametrize("name", TOLD)
def test_what_a_tenant_is_told_reads_as_agreed(name: str) -> None:
    case = CASES[name]
    assert_golden(f"told_{name}", drawn_for_tenant(for_tenant(explain(case.request, case.hosts))))


def test_an_unknown_profile_is_answered_with_near_names() -> None:
    with pytest.raises(NotFound) as raised:
        shipped_profiles().resolve("NVIDIA A40-8QQ")
    assert raised.value.exit_code == 4
    assert_golden("unknown_profile", f"{raised.value.message}\nhint: {raised.value.hint}\n")


def test_every_golden_file_belongs_to_a_case() -> None:
    texts = {path.stem for path in GOLDEN.glob("*.txt")}
    maps = {"gpu_map_60", "gpu_map_200", "gpu_map_told", "capacity"}
    assert texts == {*CASES, *(f"told_{name}" for name in TOLD), "unknown_profile", *maps}
