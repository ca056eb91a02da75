# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tools.client_code import CLIENT, WRITTEN


@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {"models.py"}))
def test_what_a_program_writes_of_the_client_is_as_it_would_be_written_now(name: str) -> None:
    assert (CLIENT / name).read_text() == WRITTEN[name](), "run make docs"
