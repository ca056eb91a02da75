# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tools.settings_reference import PAGE, page


def test_every_setting_is_in_the_reference() -> None:
    assert PAGE.read_text() == page(), "run make docs"
