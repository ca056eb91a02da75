# SPDX-License-Identifier: Apache-2.0
"""What a family of attacks is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

EFFECTLESS = "generated attacks, each without an effect beyond the owner of what it attacked"
"""Under which a whole run counts them for docs/reference/soak.md."""
Attack = Callable[[Path], None]
"""Makes what it needs in an empty directory of its own, attacks, and asserts what must hold."""


@dataclass(frozen=True)
class Family:
    """``outcome``: what must come out of every case, as the page says it. ``cases`` by a name that tells them apart."""

    name: str
    outcome: str
    cases: Mapping[str, Attack]
    in_one_run: bool = False
    """One run serves all cases, so that a sample would cost as much as all of them."""

    def sample(self, size: int) -> dict[str, Attack]:
        """The same ones in every run."""
        chosen = random.Random(self.name).sample(sorted(self.cases), min(size, len(self.cases)))
        return {case: self.cases[case] for case in chosen}
