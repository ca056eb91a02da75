# SPDX-License-Identifier: Apache-2.0
"""VMs that are backed up, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orchestrator.core.vms.backup import Backup
from orchestrator.services.messages import CreateVm
from orchestrator.services.vms import volumes_of_backups
from orchestrator.services.vms.boot_checks import boot_backup
from orchestrator.services.vms.volumes_of_backups import VolumeOfBackup
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.operations.disk_snapshots import stopped, with_volumes
from tests.operations.of_one_vm import Case
from tests.operations.suspending import delete, running

Prepare = Callable[[ControlPlane], None]


def with_target(prepare_vm: Prepare) -> Prepare:
    def prepare(plane: ControlPlane) -> None:
        prepare_vm(plane)
        plane.services.backup_targets.create("nas")

    return prepare


def with_backup(prepare_vm: Prepare) -> Prepare:
    def prepare(plane: ControlPlane) -> None:
        with_target(prepare_vm)(plane)
        run(plane)
        plane.engine.drain()

    return prepare


def the_backup(plane: ControlPlane) -> Backup:
    (backup,) = plane.services.backups.list(None)
    return backup


def run(plane: ControlPlane) -> str | None:
    return plane.services.backups.run("default", "train", None).operation


def restore(plane: ControlPlane) -> str | None:
    return plane.services.backups.restore("default", the_backup(plane).id, "train").operation


def verify(plane: ControlPlane) -> str | None:
    return plane.services.backups.verify("default", the_backup(plane).id).operation


def remove(plane: ControlPlane) -> str | None:
    return plane.services.backups.delete("default", the_backup(plane).id).operation


def without_records(prepare_vm: Prepare) -> Prepare:
    def prepare(plane: ControlPlane) -> None:
        with_backup(prepare_vm)(plane)
        with plane.store.begin() as tx:
            tx.backups.remove(the_backup(plane).id)

    return prepare


def bring_in(plane: ControlPlane) -> str | None:
    return plane.services.backups.bring_in("nas", "default", "default").operation


def boot(plane: ControlPlane, timeout_s: int = 4, profile: str | None = "GRID T4-2Q") -> str | None:
    """A copy of it, without network."""
    return boot_backup(plane.services.vms, "default", the_backup(plane).id, profile, timeout_s).operation


def copy_of(plane: ControlPlane, **more: Any) -> CreateVm:
    """A VM whose disk is what it holds."""
    wanted = create_vm("twin", profile="GRID T4-2Q")
    return replace(wanted, from_backup=the_backup(plane).id[:8], **more)


def with_all_backed_up(prepare_vm: Prepare) -> Prepare:
    """With two data volumes that it writes."""
    return with_backup(with_volumes(prepare_vm))


def make_volume(plane: ControlPlane, name: str = "again", **more: Any) -> str | None:
    wanted = VolumeOfBackup(**{"name": name, "volume": "data", **more})
    return volumes_of_backups.make_volume(plane.services.volumes, "default", the_backup(plane).id, wanted).operation


CASES: tuple[Case, ...] = (
    ("back up running", "back_up_vm", with_target(running(L40S_HOST)), run),
    ("back up stopped", "back_up_vm", with_target(stopped(T4_HOST)), run),
    ("restore backup", "restore_backup", with_backup(stopped(L40S_HOST)), restore),
    ("back up running with volumes", "back_up_vm", with_target(with_volumes(running(L40S_HOST))), run),
    ("back up stopped with volumes", "back_up_vm", with_target(with_volumes(stopped(T4_HOST))), run),
    ("restore backup with volumes", "restore_backup", with_all_backed_up(stopped(L40S_HOST)), restore),
    ("verify backup with volumes", "verify_backup", with_all_backed_up(running(T4_HOST)), verify),
    ("delete backup with volumes", "delete_backup", with_all_backed_up(running(T4_HOST)), remove),
    ("volume from backup", "fetch_volume", with_all_backed_up(running(T4_HOST)), make_volume),
    ("verify backup", "verify_backup", with_backup(running(T4_HOST)), verify),
    ("delete backup", "delete_backup", with_backup(running(T4_HOST)), remove),
    ("boot backup", "boot_backup", with_backup(stopped(T4_HOST)), boot),
    (
        "create from backup", "create_vm", with_backup(stopped(T4_HOST)),
        lambda plane: plane.services.vms.create(copy_of(plane)).operation,
    ),
    ("import backups", "import_backups", without_records(running(T4_HOST)), bring_in),
    ("delete with backup", "delete_vm", with_backup(running(T4_HOST)), delete),
)  # fmt: skip
