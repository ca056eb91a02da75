# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tools.api_description import FILE, kept


def test_models_of_the_client_are_written_from_what_the_api_says_now() -> None:
    assert FILE.read_text(encoding="utf-8") == kept(), "run make docs"
