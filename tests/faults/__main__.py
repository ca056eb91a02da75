# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.faults``: writes docs/reference/faults.md from the catalogue and the marks."""

from __future__ import annotations

from tests.architecture.tree import ROOT
from tests.faults.page import PAGE, page

if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
