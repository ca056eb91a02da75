# SPDX-License-Identifier: Apache-2.0
"""Whatever findings depend on: a quiet host is compared anew when it changes, and whenever somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.drivers.lock import DriverLock, Locked, LockGroup
from orchestrator.core.vms.image import NewImage
from orchestrator.services.messages import HostChange
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

OTHER = DriverLock(site=(Locked(component="host_driver", version="999.1.1"),))


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A host that is quiet, with a VM."""
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        for _ in range(2):
            next_round(made)
        assert is_judged(made)
        yield made
        made.reconciler.close()


def next_round(plane: ControlPlane) -> None:
    plane.world.clock.sleep(30)
    plane.reconciler.round()


def is_judged(plane: ControlPlane) -> bool:
    with plane.store.read() as tx:
        return tx.observations.is_judged(T4_HOST)


def codes(plane: ControlPlane) -> list[str]:
    return [one.finding.code for one in plane.findings.list(host=T4_HOST)]


class Recording(Store):
    """A store whose readers are written down: which of a transaction's parts they ask."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    @contextmanager
    def read(self) -> Iterator[Any]:
        with self.store.read() as tx:
            yield _Asked(tx, self.asked)


@dataclass
class _Asked:
    tx: Transaction
    asked: set[str]

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.tx, name)


def _set(change: HostChange) -> Callable[[ControlPlane], object]:
    return lambda plane: plane.services.hosts.change(T4_HOST, change)


def _remove_image(plane: ControlPlane) -> None:
    plane.services.images.add(NewImage(name="other", source="/other.qcow2"))
    plane.services.images.remove("other")


BY_OPERATIONS = "operations alone change it, and each has its host looked at as a whole"
BY_LOOKS = "looks alone change it"
PARTS: dict[str, str | list[Callable[[ControlPlane], object]]] = {
    "hosts": [_set(HostChange(labels={"rack": "7"})), _set(HostChange(allow_unconfined=True))],
    "driver_locks": [lambda plane: plane.services.driver_locks.apply(OTHER)],
    "policies": [lambda plane: plane.services.tenancy.policies.change("default", {"isolation": "gpu"})],
    "images": [_remove_image],
    "vms": BY_OPERATIONS,
    "claims": BY_OPERATIONS,
    "operations": BY_OPERATIONS,
    "volumes": BY_OPERATIONS,
    "guests": BY_OPERATIONS,
    "cards": BY_OPERATIONS,
    "networks": "those that VMs are on stay, by the names that they have",
    "controllers": "each looks by itself, and a host that one does not reach is unreachable to it",
    "maintenances": "a maintenance itself has its hosts compared anew where that changes (reconcile/maintenances.py)",
    "findings": BY_LOOKS,
    "observations": BY_LOOKS,
}
"""What the comparison reads of the database: how it changes, or why that needs no more."""
CHANGES = [change for how in PARTS.values() if not isinstance(how, str) for change in how]


def test_of_all_that_the_comparison_reads_it_is_known_how_it_changes(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("another"))
    plane.engine.drain()
    recording = Recording(plane.store)
    replace(plane.reconciler, store=recording).observe(T4_HOST)
    assert recording.asked - PARTS.keys() == set()
    assert {"hosts", "vms", "driver_locks", "cards", "operations"} <= recording.asked


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_has_a_quiet_host_compared_anew(plane: ControlPlane, change: Callable[[ControlPlane], object]) -> None:
    change(plane)
    assert not is_judged(plane)
    next_round(plane)
    assert is_judged(plane)


def test_a_lock_that_is_applied_and_a_label_that_chooses_another_are_findings_of_the_next_round(
    plane: ControlPlane,
) -> None:
    plane.services.driver_locks.apply(OTHER)
    next_round(plane)
    assert codes(plane) == ["driver.drift"]
    now = plane.services.hosts.get(T4_HOST).snapshot
    assert now is not None
    locked = (Locked(component="host_driver", version=str(now.driver_version)),)
    group = LockGroup(name="old", selector="a=b", locked=locked)
    plane.services.driver_locks.apply(replace(OTHER, groups=(group,)))
    plane.services.hosts.change(T4_HOST, HostChange(labels={"a": "b"}))
    next_round(plane)
    assert codes(plane) == []
    plane.services.hosts.change(T4_HOST, HostChange(labels={"a": None}))
    next_round(plane)
    assert codes(plane) == ["driver.drift"]


def test_who_asks_is_told_how_what_is_wanted_now_differs(plane: ControlPlane) -> None:
    """Whatever wrote it: here nobody said that the host is to be compared anew."""
    vm = plane.services.vms.get("default", "train")
    with plane.store.begin() as tx:
        tx.vms.update(replace(vm, wanted="stopped"))
    next_round(plane)
    assert (is_judged(plane), codes(plane)) == (True, [])
    assert [one.finding.code for one in plane.findings.observe(None)] == ["vm.running"]
