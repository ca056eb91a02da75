# SPDX-License-Identifier: Apache-2.0
"""The newcomer's page does what it says, from the demo to an empty host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.conftest import LabHost
from tests.lab.product import Product
from tests.lab.walkthrough import commands_of, walk

pytestmark = [pytest.mark.lab, pytest.mark.soak]

ROOT = Path(__file__).parents[2]


def test_the_page_of_two_tenants_is_true_on_a_host_that_had_no_driver(new: LabHost) -> None:
    try:
        walk(commands_of(ROOT / "docs/tutorial/two-tenants.md"), ROOT, limit_s=1400)
    finally:
        Product(ROOT / "build/demo").close()
    assert "vgpuctl" not in new.run("ls /etc/systemd/system")
