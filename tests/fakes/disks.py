# SPDX-License-Identifier: Apache-2.0
"""The services of data volumes, pools and backups."""

from __future__ import annotations

from orchestrator.ports.engine import Engine
from orchestrator.services.pools import PoolService
from orchestrator.services.site_time import SiteTime
from orchestrator.services.vms.backup_policies import BackupPolicyService
from orchestrator.services.vms.backups import BackupTargets, VmBackups
from orchestrator.services.vms.planning import Planner
from orchestrator.services.vms.volume_snapshots import VolumeSnapshots
from orchestrator.services.vms.volumes import VolumeService
from orchestrator.store.database import Store


def of_disks(
    store: Store, engine: Engine, planner: Planner
) -> tuple[VolumeService, VolumeSnapshots, PoolService, BackupTargets, VmBackups, BackupPolicyService]:
    pools = PoolService(store=store, engine=engine, planner=planner, observe=lambda _host: None)
    backups = VmBackups(store=store, engine=engine, planner=planner)
    volumes = VolumeService(store=store, engine=engine, planner=planner)
    time = SiteTime(store, planner.clock, ask_database=False)
    policies = BackupPolicyService(store=store, clock=planner.clock, time=time)
    targets = BackupTargets(store=store, planner=planner)
    return volumes, VolumeSnapshots(volumes=volumes), pools, targets, backups, policies
