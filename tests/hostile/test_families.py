# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.families.all import FAMILIES
from tests.hostile.families.family import EFFECTLESS, Attack, Family

SAMPLE = 12
SAMPLED = [
    pytest.param(attack, id=f"{family.name}: {case}")
    for family in FAMILIES
    if not family.in_one_run
    for case, attack in family.sample(SAMPLE).items()
]


@pytest.mark.parametrize("attack", SAMPLED)
def test_an_attack_of_a_family_ends_as_its_family_says(tmp_path: Path, attack: Attack) -> None:
    attack(tmp_path)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.in_one_run], ids=lambda family: family.name)
def test_all_attacks_of_a_family_that_one_run_serves_end_as_it_says(tmp_path: Path, family: Family) -> None:
    for attack in family.cases.values():
        attack(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_attack_of_a_family_ends_as_its_family_says(
    tmp_path: Path, family: Family, record_property: Callable[[str, object], None]
) -> None:
    for number, attack in enumerate(family.cases.values()):
        place = tmp_path / str(number)
        place.mkdir()
        attack(place)
    record_property(EFFECTLESS, len(family.cases))
