# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.hostile.families``: writes docs/reference/hostile.md."""

from __future__ import annotations

from tests.architecture.tree import ROOT
from tests.hostile.families.page import PAGE, page

if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
