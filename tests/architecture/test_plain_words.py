# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tools.plain_words import bounds, counted

COUNTED = counted()


@pytest.mark.parametrize("package", sorted({package for package, _ in COUNTED}))
def test_no_package_has_more_names_that_say_nothing_than_it_had(package: str) -> None:
    """docs/explanation/words.md has what to say instead; ``python -m tools.plain_words`` writes what has gone down."""
    at_most = bounds()
    more = {
        word: f"{count}, at most {at_most.get((package, word), 0)}"
        for (where, word), count in COUNTED.items()
        if where == package and count > at_most.get((package, word), 0)
    }
    assert more == {}
