# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import pytest

FAULTS = pytest.StashKey[Counter[str]]()
"""By database: how many runs of an operation the fault matrix has made."""
