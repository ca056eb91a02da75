# SPDX-License-Identifier: Apache-2.0
"""Beside its like in tests/unit/client: the generator of models alone takes four seconds."""

from __future__ import annotations

from tools.client_code import CLIENT, models


def test_models_of_the_client_are_as_they_would_be_written_now() -> None:
    assert (CLIENT / "models.py").read_text() == models(), "run make docs"
