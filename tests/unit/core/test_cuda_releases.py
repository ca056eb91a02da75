# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.drivers.matrix import check_cuda, cuda_releases, is_too_old
from orchestrator.core.errors import Conflict

MATRIX = shipped().driver_matrix


def test_releases_are_tried_from_the_newest_each_with_the_row_that_says_its_oldest_driver() -> None:
    found = cuda_releases(MATRIX)
    assert [one.release for one in found][:6] == ["13.5", "13.4", "13.3", "13.2", "13.1", "13.0"]
    assert (found[6].oldest_driver, found[6].row) == ("525", "cuda_minor_compat 12.x")
    assert (found[-1].release, found[-1].row) == ("10.0", "cuda_toolkit 10.0")


@pytest.mark.parametrize(
    ("name", "release"),
    [("12.8 Update 1", "12.8.1"), ("12.8 GA", "12.8.0"), ("13.1", "13.1"), ("10.2.89", "10.2.89")],
)
def test_a_locked_toolkit_is_the_only_one_and_in_that_update(name: str, release: str) -> None:
    assert [one.release for one in cuda_releases(MATRIX, name)] == [release]


def test_a_toolkit_that_the_driver_is_too_old_for_is_refused_with_the_row() -> None:
    check_cuda(MATRIX, driver="525.60.13", toolkit="12.8 GA")
    check_cuda(MATRIX, driver="470.82.01", toolkit=None)
    with pytest.raises(Conflict) as caught:
        check_cuda(MATRIX, driver="470.82.01", toolkit="12.8 GA")
    assert caught.value.code == "guest.cuda_forbidden"
    assert "row cuda_minor_compat 12.x" in caught.value.message


def test_a_locked_toolkit_that_no_table_knows_takes_what_its_major_takes() -> None:
    (known_major,) = cuda_releases(MATRIX, "13.99")
    (unknown_major,) = cuda_releases(MATRIX, "99.1 Update 2")
    assert (known_major.release, known_major.oldest_driver) == ("13.99", "580")
    assert (unknown_major.release, is_too_old("418.39", unknown_major)) == ("99.1.2", False)
