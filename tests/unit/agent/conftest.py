# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.bench import Bench


@pytest.fixture
def furnished(tmp_path: Path) -> Iterator[Bench]:
    """A host on which there is all that a VM needs."""
    made = Bench(tmp_path)
    made.furnish(made.vm)
    yield made
    made.close()
