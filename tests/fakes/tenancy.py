# SPDX-License-Identifier: Apache-2.0
"""Tenants, members and tokens as they are, for the fakes that stand in for everything else."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.adapters.store.database import SqlStore
from orchestrator.services.tenancy import Tenancy, tenancy
from tests.fakes.fake_world import FakeClock

KEY = b"SUyU4-1hOL-dPpaQ25Uu0ry_jSEUmU0pE_q5wWxSgkQ="


def real_tenancy(directory: Path) -> Tenancy:
    store = SqlStore(f"sqlite:///{directory / 'tenants.sqlite'}", key=KEY, new_site="site")
    return tenancy(store, FakeClock(), owner_uid=os.geteuid(), key=KEY)
