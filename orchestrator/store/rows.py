# SPDX-License-Identifier: Apache-2.0
"""Rows to core values and back. JSON columns hold what is never searched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from operator import attrgetter
from sys import getsizeof
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Text, and_, cast, or_

from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.gpu.health_states import GpuHealth
from orchestrator.core.hosts.cpus import CpuPlace, cpus_text, parse_cpus
from orchestrator.core.hosts.host import Cordon, Host
from orchestrator.core.hosts.mig_layout import MigLayout
from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.labels import About
from orchestrator.core.operation import FINISHED, UNFINISHED, Asked, HostWait, Operation, StepRecord
from orchestrator.core.overlay import Port
from orchestrator.core.units import MIB
from orchestrator.core.vms.claim import Claim, DeviceClaim
from orchestrator.core.vms.disk_snapshot import DiskSnapshot
from orchestrator.core.vms.size import HeldSize
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.store.records import OperationFilter
from orchestrator.store.statements import AnyRow
from orchestrator.store.tables import hosts, operations, vms

_HOST_COLUMNS: Final = hosts.c.keys()


def host_values(host: Host) -> dict[str, Any]:
    values = asdict(host)
    del values["managed_gpus"], values["mig_layouts"], values["gpu_health"]
    lists = {"pinnable_cpus": cpus_text(host.pinnable_cpus) or None, "rdma_nics": ",".join(host.rdma_nics) or None}
    return values | {"labels": dict(host.labels), **lists}


def host_of(row: AnyRow, gpus: Sequence[tuple[str, Any, Any]]) -> Host:
    """The row may have more than the host's own columns. ``gpus``: (address, layout and health as they are stored)."""
    values = {name: getattr(row, name) for name in _HOST_COLUMNS}
    return Host(
        **{
            **values,
            "labels": tuple(sorted(values["labels"].items())),
            "pinnable_cpus": parse_cpus(values["pinnable_cpus"] or ""),
            "rdma_nics": tuple(filter(None, (values["rdma_nics"] or "").split(","))),
            "cordon": None if values["cordon"] is None else Cordon(**values["cordon"]),
        },
        managed_gpus=tuple(address for address, _, _ in gpus),
        mig_layouts=tuple(layout_of(address, stored) for address, stored, _ in gpus if stored is not None),
        gpu_health=tuple((address, health_of(stored)) for address, _, stored in gpus if stored is not None),
    )


def layout_values(layout: MigLayout) -> dict[str, Any]:
    return {"on": layout.on, "instances": [[instance.profile, instance.start] for instance in layout.instances]}


def layout_of(gpu: str, stored: dict[str, Any]) -> MigLayout:
    places = tuple(InstancePlace(profile, start) for profile, start in stored["instances"])
    return MigLayout(gpu=gpu, on=stored["on"], instances=places)


def health_of(stored: dict[str, Any]) -> GpuHealth:
    made: GpuHealth = _HEALTH.validate_python(stored)
    return made


_HEALTH: Final = TypeAdapter[Any](GpuHealth)
_VM_FIELDS: Final = tuple(field.name for field in fields(Vm))
_VM_JSON: Final = {
    name: TypeAdapter[Any](kind).validator.validate_json
    for name, kind in {
        "spec": VmSpec,
        "devices": tuple[Device, ...],
        "addresses": tuple[str, ...],
        "cpus": CpuPlace,
        "nic": NicPlace,
        "ports": tuple[Port, ...],
        "snapshots": tuple[DiskSnapshot, ...],
    }.items()
}
VM_COLUMNS: Final = tuple(
    cast(vms.c[name], Text).label(name) if name in _VM_JSON else vms.c[name] for name in _VM_FIELDS
)
"""What :func:`vm_of` reads. JSON stays text here: values are made from it at once, and only when they are new."""
IS_PLACE: Final = and_(vms.c.state == "moving", vms.c.name == vms.c.id)
"""What is held for a VM that moves (places.py): it is no VM."""


def vm_values(vm: Vm) -> dict[str, Any]:
    plain = {name: getattr(vm, name) for name in _VM_FIELDS if name not in _VM_JSON}
    own = {"tenant": vm.spec.tenant, "name": vm.spec.name, "image": vm.spec.image or None}
    return {
        **plain,
        **own,
        **order_values(vm.spec),
        "spec": asdict(vm.spec),
        "devices": [asdict(device) for device in vm.devices],
        "addresses": list(vm.addresses),
        "cpus": None if vm.cpus is None else asdict(vm.cpus),
        "firmware": None if vm.firmware == "bios" else vm.firmware,
        "nic": None if vm.nic is None else asdict(vm.nic),
        "ports": [asdict(port) for port in vm.ports] or None,
        "snapshots": [asdict(snapshot) for snapshot in vm.snapshots] or None,
    }


def order_values(spec: VmSpec) -> dict[str, Any]:
    """What lists are sorted by and that stands in ``spec`` alone."""
    return {"profile_lower": spec.profile.casefold(), "vcpus": spec.vcpus, "memory_mib": spec.memory_mib}


_VMS: Final = ByteCache[tuple[tuple[Any, ...], Vm]](192 * MIB)
"""By id, as it was read last: planning reads all VMs, and hardly one has changed since. Enough for 20,000 of the usual
size; one may have keys and user data of a megabyte."""
_VM_BYTES: Final = 2048
"""Of a VM without its texts."""


def vm_of(row: AnyRow) -> Vm:
    """``row``: of :data:`VM_COLUMNS`."""
    columns = tuple(row)
    cached = _VMS.get(columns[0])
    if cached is not None and cached[0] == columns:
        return cached[1]
    vm = _vm_of(columns)
    _VMS.put(columns[0], (columns, vm), _VM_BYTES + 2 * sum(map(getsizeof, columns)))
    return vm


def forget_vm(vm_id: str) -> None:
    """It is gone."""
    _VMS.drop(vm_id)


def _vm_of(columns: tuple[Any, ...]) -> Vm:
    values = dict(zip(_VM_FIELDS, columns, strict=True))
    for name, read in _VM_JSON.items():
        if values[name] is not None:
            values[name] = read(values[name])
    empty = {name: () for name in ("ports", "snapshots") if values[name] is None}
    return Vm(**{**values, "firmware": values["firmware"] or "bios", **empty})


_SIZE: Final = TypeAdapter(HeldSize).validator.validate_python


def size_of(stored: object) -> HeldSize:
    """What ``dataclasses.asdict`` made of one, and JSON of that."""
    size: HeldSize = _SIZE(stored)
    return size


_STARTED_WITH: Final = ("id", "kind", "subject", "subject_name", "tenant", "attempt", "went_on", "created_at")
_OPERATION_FIELDS: Final = (*_STARTED_WITH, "state", "finished_at", "error", "ended_turn", "guest_wait")
"""Stored as they are."""
_STEP_FIELDS: Final = tuple(field.name for field in fields(StepRecord))


def operation_values(operation: Operation) -> dict[str, Any]:
    return {
        **{name: getattr(operation, name) for name in _STARTED_WITH},
        **course_values(operation),
        "asked": None if operation.asked is None else asdict(operation.asked),
    }


def course_values(operation: Operation) -> dict[str, Any]:
    """What changes while an attempt runs."""
    wait = None if operation.state in FINISHED else operation.host_wait
    return {
        "state": operation.state,
        "finished_at": operation.finished_at,
        "error": operation.error,
        "remainder": list(operation.remainder),
        "warnings": list(operation.warnings),
        "host_wait": None if wait is None else wait.state,
        "host_wait_since": None if wait is None else wait.since,
        "guest_wait": None if operation.state in FINISHED else operation.guest_wait,
        **({} if wait is None else {"host": wait.host}),  # of one between two hosts: what its row is read by
    }


def operation_of(row: AnyRow, steps: tuple[StepRecord, ...]) -> Operation:
    return Operation(
        **{name: getattr(row, name) for name in _OPERATION_FIELDS},
        steps=steps,
        remainder=tuple(row.remainder),
        warnings=tuple(row.warnings),
        host_wait=None if row.host_wait is None else host_wait_of(row),
        asked=None if row.asked is None else Asked(**row.asked),
    )


def host_wait_of(row: AnyRow) -> HostWait:
    return HostWait(host=row.host, since=row.host_wait_since, state=row.host_wait)


def step_of(row: AnyRow) -> StepRecord:
    return StepRecord(**{name: getattr(row, name) for name in _STEP_FIELDS})


def about_of(stored: Mapping[str, Any] | None) -> About:
    """None: nobody has said anything."""
    if stored is None:
        return About()
    return About(description=stored["description"], labels=tuple(sorted(stored["labels"].items())))


def about_values(about: About) -> dict[str, object]:
    """The column of :func:`about_of`."""
    return {"description": about.description, "labels": dict(about.labels)}


def claim_of(slots: Sequence[AnyRow]) -> Claim:
    """``slots``: of one VM, by device and slot; each row has all that is claimed beside it, too."""
    first = slots[0]
    return Claim(
        vm=first.vm,
        host=first.host,
        devices=tuple(_device_claim(tuple(rows)) for _, rows in groupby(slots, key=attrgetter("device"))),
        vcpus=first.vcpus,
        memory_mib=first.memory_mib,
        disk_bytes=first.disk_bytes,
        cpus=parse_cpus(first.cpus or ""),
        nic=first.nic,
    )


def _device_claim(slots: Sequence[AnyRow]) -> DeviceClaim:
    first = slots[0]
    return DeviceClaim(gpu=first.gpu, cut=first.cut, slots=tuple(row.slot for row in slots), function=first.function)


def operations_matching(only: OperationFilter) -> Iterator[ColumnElement[bool]]:
    """What must hold of each."""
    if only.get("unfinished"):
        yield operations.c.state.in_(UNFINISHED)
    if (states := only.get("states")) is not None:
        yield operations.c.state.in_(states)
    if (kind := only.get("kind")) is not None:
        yield operations.c.kind == kind
    if (tenants := only.get("tenants")) is not None:
        yield operations.c.tenant.in_(tenants)
    if (subject := only.get("subject")) is not None:
        yield or_(operations.c.subject == subject, operations.c.subject_name == subject)
    if (beginning := only.get("beginning")) is not None:
        yield operations.c.id.startswith(beginning, autoescape=True)
