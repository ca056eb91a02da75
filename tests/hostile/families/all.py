# SPDX-License-Identifier: Apache-2.0
"""Every family, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.hostile.families import images
from tests.hostile.families.family import Family

FAMILIES: Final[tuple[Family, ...]] = (*images.FAMILIES,)
