# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.bench.placement.rows import rows_of
from tests.bench.placement.targets import TARGETS, by_hand, page


def _lines(*values: tuple[str, str, dict[str, float]]) -> list[str]:
    found = [row for case, policy, metrics in values for row in rows_of("S1", case, policy, metrics)]
    return [line for line in page(found, "Head.").splitlines() if line.startswith("| S1 ")]


def test_a_target_is_met_or_missed_by_the_mean_of_its_cases_without_the_heavy_tailed_ones() -> None:
    case = "load=0.95 gpus=100 mix="
    first = _lines(
        (f"{case}uniform", "vgpuctl", {"weighted_acceptance": 93.0, "active_over_min": 1.07}),
        (f"{case}bimodal", "vgpuctl", {"weighted_acceptance": 95.5, "active_over_min": 1.07}),
        (f"{case}uniform lifetime=lognormal", "vgpuctl", {"weighted_acceptance": 0.0}),
        (f"{case}uniform", "ceiling", {"weighted_acceptance": 96.5}),
        (f"{case}uniform", "lp_bound", {"weighted_acceptance": 98.5}),
    )
    assert "| ≥ 94 | 94.25 | 96.5 | 98.5 | yes |" in first[0]
    assert any("active_over_min | ≤ 1.06 | 1.07 | - | - | no |" in line for line in first)


def test_what_people_wrote_stays_when_the_page_is_written_again() -> None:
    assert by_hand(page([], "") + "\n## Notes\n\nBy hand.\n") == "\n## Notes\n\nBy hand.\n"
    assert by_hand(page([], "")) == ""


def test_what_was_not_measured_is_said_to_be_so() -> None:
    assert len([line for line in page([], "").splitlines() if "not measured" in line]) == len(TARGETS)
