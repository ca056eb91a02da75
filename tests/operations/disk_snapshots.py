# SPDX-License-Identifier: Apache-2.0
"""VMs with snapshots of their disks, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.core.units import GIB
from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.operations.of_one_vm import Case
from tests.operations.suspending import delete, running

NAME = "before"
GROWN = 8 * GIB
VOLUMES = ("data", "logs")


def stopped(host: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        running(host)(plane)
        plane.services.vms.stop("default", "train")
        plane.engine.drain()

    return prepare


def with_snapshot(prepare_vm: Callable[[ControlPlane], None]) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        prepare_vm(plane)
        take(plane)
        plane.engine.drain()

    return prepare


def take(plane: ControlPlane, name: str = NAME) -> str | None:
    return plane.services.disk_snapshots.create("default", "train", name).operation


def take_all(plane: ControlPlane, name: str = NAME) -> str | None:
    """Also of its volumes, at the same moment."""
    return plane.services.disk_snapshots.create("default", "train", name, volumes=True).operation


def with_volumes(prepare_vm: Callable[[ControlPlane], None]) -> Callable[[ControlPlane], None]:
    """It writes two data volumes."""

    def prepare(plane: ControlPlane) -> None:
        prepare_vm(plane)
        for volume in VOLUMES:
            plane.services.volumes.create("default", volume, GIB)
            plane.services.volumes.attach("default", volume, "train")
            plane.engine.drain()

    return prepare


def with_all_taken(prepare_vm: Callable[[ControlPlane], None]) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        with_volumes(prepare_vm)(plane)
        take_all(plane)
        plane.engine.drain()

    return prepare


def grow(plane: ControlPlane) -> str | None:
    return plane.services.disk_growth.resize("default", "train", GROWN).operation


def remove(plane: ControlPlane) -> str | None:
    return plane.services.disk_snapshots.delete("default", "train", NAME).operation


def restore(plane: ControlPlane) -> str | None:
    return plane.services.disk_snapshots.restore("default", "train", NAME).operation


def make_image(plane: ControlPlane, name: str = "trained") -> str | None:
    return plane.services.disk_snapshots.image("default", "train", NAME, name).operation


def copy_of(name: str = "twin") -> CreateVm:
    """A VM whose disk is a copy of it."""
    return replace(create_vm(name, profile="NVIDIA L40S-12Q"), from_snapshot=f"train/{NAME}")


CASES: tuple[Case, ...] = (
    ("snapshot of running", "create_snapshot", running(L40S_HOST), take),
    ("snapshot of stopped", "create_snapshot", stopped(T4_HOST), take),
    ("snapshot of running with volumes", "create_snapshot", with_volumes(running(L40S_HOST)), take_all),
    ("snapshot of stopped with volumes", "create_snapshot", with_volumes(stopped(T4_HOST)), take_all),
    ("delete snapshot with volumes", "delete_snapshot", with_all_taken(running(T4_HOST)), remove),
    ("restore snapshot with volumes", "restore_snapshot", with_all_taken(stopped(L40S_HOST)), restore),
    ("delete snapshot", "delete_snapshot", with_snapshot(running(T4_HOST)), remove),
    ("restore snapshot", "restore_snapshot", with_snapshot(stopped(L40S_HOST)), restore),
    ("image of snapshot", "create_image", with_snapshot(running(T4_HOST)), make_image),
    (
        "create from snapshot", "create_vm", with_snapshot(stopped(L40S_HOST)),
        lambda plane: plane.services.vms.create(copy_of()).operation,
    ),
    ("grow the disk of running", "grow_disk", running(L40S_HOST), grow),
    ("grow the disk of stopped", "grow_disk", with_snapshot(stopped(T4_HOST)), grow),
    ("delete with snapshot", "delete_vm", with_snapshot(running(T4_HOST)), delete),
)  # fmt: skip
