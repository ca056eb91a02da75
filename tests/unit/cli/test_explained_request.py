# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.advice.explain import render_explanation


@pytest.mark.parametrize(
    ("vcpus", "memory_mib", "said"),
    [(1, 192, "1 vCPU and 192 MiB"), (2, 4096, "2 vCPUs and 4 GiB"), (8, 1536, "8 vCPUs and 1.5 GiB")],
)
def test_what_was_asked_for_is_said_in_sizes_that_people_ask_for(vcpus: int, memory_mib: int, said: str) -> None:
    asked = {"profile": "t4-2q", "count": 1, "vcpus": vcpus, "memory_mib": memory_mib, "tenant": "blue"}
    lines = render_explanation({"fits": True, "restricted": True, "asked": asked}, 80)
    assert lines == [f"t4-2q with {said} for tenant blue fits"]
