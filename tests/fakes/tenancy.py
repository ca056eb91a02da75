# SPDX-License-Identifier: Apache-2.0
"""Tenants, members and tokens as they are, for the fakes that stand in for everything else."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.services.tenancy.tenancy import Tenancy, tenancy
from tests.fakes.fake_world import FakeClock
from tests.fakes.new_database import new_store

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="


def real_tenancy(directory: Path) -> Tenancy:
    return tenancy(new_store(directory / "tenants.sqlite", KEY), FakeClock(), owner_uid=os.geteuid(), key=KEY)
