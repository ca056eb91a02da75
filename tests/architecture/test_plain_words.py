# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import pytest

from tools.plain_words import bounds, counted, package_of
from tools.tree import files


@pytest.fixture(scope="module")
def counts() -> Counter[tuple[str, str]]:
    return counted()


@pytest.mark.parametrize("package", sorted({package_of(path) for path in files(".py", under="orchestrator/")}))
def test_no_package_has_more_names_that_say_nothing_than_it_had(counts: Counter[tuple[str, str]], package: str) -> None:
    """docs/explanation/words.md has what to say instead; ``python -m tools.plain_words`` writes what has gone down."""
    at_most = bounds()
    more = {
        word: f"{count}, at most {at_most.get((package, word), 0)}"
        for (where, word), count in counts.items()
        if where == package and count > at_most.get((package, word), 0)
    }
    assert more == {}
