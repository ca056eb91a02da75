# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tools import hostile_reference as attacks
from tools.fault_reference import PAGE, catalogue, marked, page
from tools.tree import text


def test_every_marked_fault_is_in_the_catalogue() -> None:
    assert set(marked()) - {fault.id for fault in catalogue()} == set()


def test_a_fault_has_a_test_or_a_reason_and_never_both() -> None:
    tests = marked()
    assert [fault.id for fault in catalogue() if (fault.id in tests) == bool(fault.why_not)] == []


def test_the_catalogue_has_every_number_once() -> None:
    assert [fault.id for fault in catalogue()] == [f"F{number:02}" for number in range(1, 131)]


def test_the_page_of_attacks_says_what_the_families_say() -> None:
    assert text(attacks.PAGE) == attacks.page(), "run make docs"


def test_the_page_of_faults_says_what_the_marks_say() -> None:
    assert text(PAGE) == page(), "run make docs"
