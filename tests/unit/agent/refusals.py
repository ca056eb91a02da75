# SPDX-License-Identifier: Apache-2.0
"""That the agent refuses a thing, in which family and by which code."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.core.errors import VgpuctlError


def refused(code: str, family: type[VgpuctlError], call: Callable[[], object]) -> VgpuctlError:
    with pytest.raises(family) as error:
        call()
    assert error.value.code == code
    return error.value
