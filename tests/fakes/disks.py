# SPDX-License-Identifier: Apache-2.0
"""The services of data volumes and pools."""

from __future__ import annotations

from orchestrator.ports.engine import Engine
from orchestrator.services.pools import PoolService
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.volumes import VolumeService
from orchestrator.store.database import Store


def of_disks(store: Store, engine: Engine, planner: Planner) -> tuple[VolumeService, PoolService]:
    volumes = VolumeService(store=store, engine=engine, planner=planner)
    return volumes, PoolService(store=store, engine=engine, planner=planner, observe=lambda _host: None)
