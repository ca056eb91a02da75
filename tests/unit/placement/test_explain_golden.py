# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.profiles import read_profiles
from orchestrator.core.errors import InvalidInput
from orchestrator.core.placement.explain import explain, for_tenant
from orchestrator.core.placement.render_explain import render_explanation
from tests.unit.placement.explain_cases import CASES
from tests.unit.placement.golden_text import GOLDEN, assert_golden


@pytest.mark.parametrize("name", CASES)
def test_an_explanation_reads_as_agreed(name: str) -> None:
    case = CASES[name]
    explanation = explain(case.request, case.hosts, quotas=case.quotas, modes=case.modes)
    if case.tenant is not None:
        explanation = for_tenant(explanation, case.tenant)
    assert_golden(name, render_explanation(explanation))


def test_an_unknown_profile_is_answered_with_near_names() -> None:
    with pytest.raises(InvalidInput) as raised:
        read_profiles().resolve("NVIDIA A40-8QQ")
    assert raised.value.exit_code == 2
    assert_golden("unknown_profile", f"{raised.value.message}\nhint: {raised.value.hint}\n")


def test_every_golden_file_belongs_to_a_case() -> None:
    texts = {path.stem for path in GOLDEN.glob("*.txt")}
    maps = {"gpu_map_60", "gpu_map_200", "capacity"}
    assert texts == {*CASES, "unknown_profile", *maps}
