# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import PAGE, first_failed, page
from tests.mutants.mutations import MUTATIONS, Edit

ROOT = Path(__file__).parents[2]
EDITS = [edit for mutation in MUTATIONS for edit in mutation.edits]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{edit.file}:{edit.before[:40]}")
def test_what_a_mutation_takes_out_stands_in_its_file_once(edit: Edit) -> None:
    assert (ROOT / edit.file).read_text().count(edit.before) == 1


def test_the_page_has_a_row_for_each_and_none_that_nothing_notices() -> None:
    written = PAGE.read_text()
    assert page(written, {}) == written
    assert [one.removed for one in MUTATIONS if f"| {one.removed} |" not in written] == []
    assert "**nothing**" not in written


@pytest.mark.parametrize(
    "file", sorted({word.split("::")[0] for one in MUTATIONS for word in one.tests if word.startswith("tests/")})
)
def test_the_tests_that_should_notice_are_there(file: str) -> None:
    assert (ROOT / file).exists()


def test_a_line_of_a_log_is_not_taken_for_the_test_that_failed() -> None:
    log = "ERROR    orchestrator.reconcile.reconciler:reconciler.py:166 what t4 answered broke us"
    failed = "FAILED tests/unit/test_a.py::test_of_it[one] - KeyError: 'a'"
    assert first_failed(f"{log}\n{failed}\n") == "tests/unit/test_a.py::test_of_it[one]"
    assert first_failed(log) is None
