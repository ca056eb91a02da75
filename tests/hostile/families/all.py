# SPDX-License-Identifier: Apache-2.0
"""Every family, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.hostile.families import images, machine_facts, secret_files, sources, texts
from tests.hostile.families.family import Family

FAMILIES: Final[tuple[Family, ...]] = (
    *images.FAMILIES,
    *sources.FAMILIES,
    *texts.FAMILIES,
    *secret_files.FAMILIES,
    *machine_facts.FAMILIES,
)
