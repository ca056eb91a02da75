# SPDX-License-Identifier: Apache-2.0
"""Which card each managed GPU is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Table, bindparam, delete, insert, select, update

from orchestrator.core.actions.gpu_cards import GpuCard, moved_device, moved_function
from orchestrator.store.cleanings import Cleanings
from orchestrator.store.rows import VM_COLUMNS, vm_of
from orchestrator.store.statements import Statements
from orchestrator.store.tables import function_claims, gpu_cuts, gpus, slot_claims, vms
from orchestrator.store.usage import Usage

_OF_HOST: Final = (
    select(gpus.c.address, gpus.c.uuid, gpus.c.serial)
    .where(gpus.c.host == bindparam("host"), gpus.c.uuid.is_not(None))
    .order_by(gpus.c.address)
)
_OF_GPU: Final = update(gpus).where(gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address"))
_FOUND: Final = select(gpus.c.address, gpus.c.mig_found).where(
    gpus.c.host == bindparam("host"), gpus.c.mig_found.is_not(None)
)
_NOT_FOUND: Final = _OF_GPU.where(gpus.c.mig_found.is_(None))
_NOT_KNOWN: Final = _OF_GPU.where(gpus.c.uuid.is_(None))
_REPLACED: Final = _OF_GPU.where(gpus.c.uuid != bindparam("new_uuid")).values(health=None, power=None)
_BY_GPU: Final = ((gpus, "address"), (gpu_cuts, "gpu"), (slot_claims, "gpu"))
"""Tables with a column that has a GPU's address; each refers to the one before it."""


class Cards:
    """Which card each managed GPU is, and what moves with a card that is moved."""

    def __init__(self, connection: Statements, usage: Usage) -> None:
        self._db = connection
        self._usage = usage

    def of_host(self, host: str) -> tuple[GpuCard, ...]:
        """Those that are known, by address."""
        return tuple(GpuCard(**row._asdict()) for row in self._db.execute(_OF_HOST, {"host": host}))

    def learn(self, host: str, seen: Iterable[GpuCard]) -> None:
        """Which those GPUs are of which it is not known yet."""
        rows = [_row(host, card) for card in seen]
        if rows:
            self._db.execute(_NOT_KNOWN, rows)

    def mig_found(self, host: str) -> dict[str, bool]:
        """GPU → the MIG mode that it had before we changed it, as far as that is known."""
        return {row.address: row.mig_found for row in self._db.execute(_FOUND, {"host": host})}

    def learn_mig_modes(self, host: str, modes: Mapping[str, bool]) -> None:
        """The same, of those of which it is not known yet."""
        rows = [{"its_host": host, "its_address": gpu, "mig_found": on} for gpu, on in modes.items()]
        if rows:
            self._db.execute(_NOT_FOUND, rows)

    def put(self, host: str, cards: Sequence[GpuCard], moved: Mapping[str, str]) -> None:
        """Which the host's GPUs are now. What is known, kept and claimed of one goes from its old address to its new
        one (``moved``), with its VMs' devices. A GPU whose address another card took is no more.
        Of a card that replaces another nothing is remembered."""
        self._usage.touch(host)
        if moved:
            self._move(host, moved)
        if cards:
            its = {"its_host": host}
            self._db.execute(_REPLACED, [{**its, "its_address": card.address, "new_uuid": card.uuid} for card in cards])
            self._db.execute(_OF_GPU, [_row(host, card) for card in cards])

    def _move(self, host: str, moved: Mapping[str, str]) -> None:
        """Cards may have changed places, so all their rows are taken out first."""
        removed = [self._take_out(table, column, host, moved) for table, column in reversed(_BY_GPU)]
        new = list(moved.values())
        self._db.execute(delete(gpu_cuts).where(gpu_cuts.c.host == host, gpu_cuts.c.gpu.in_(new)))  # of a layout
        self._db.execute(delete(gpus).where(gpus.c.host == host, gpus.c.address.in_(new)))
        for (table, column), rows in zip(_BY_GPU, reversed(removed), strict=True):
            if rows:
                self._db.execute(insert(table), [_moved_row(row, column, moved[row[column]]) for row in rows])
        self._move_devices(host, moved)
        Cleanings(self._db, self._usage).follow_cards(host, moved)

    def _take_out(self, table: Table, column: str, host: str, moved: Mapping[str, str]) -> list[dict[str, Any]]:
        of_gpus = (table.c.host == host, table.c[column].in_(moved))
        rows = [row._asdict() for row in self._db.execute(select(table).where(*of_gpus))]
        self._db.execute(delete(table).where(*of_gpus))
        return rows

    def _move_devices(self, host: str, moved: Mapping[str, str]) -> None:
        host_vms = [vm_of(row) for row in self._db.execute(select(*VM_COLUMNS).where(vms.c.host == host))]
        after = {vm.id: tuple(moved_device(device, moved) for device in vm.devices) for vm in host_vms}
        of_vms = (function_claims.c.host == host, function_claims.c.vm.in_(after))
        claims = [row._asdict() for row in self._db.execute(select(function_claims).where(*of_vms))]
        self._db.execute(delete(function_claims).where(*of_vms))
        if claims:
            rows = [{**claim, "function": after[claim["vm"]][claim["device"]].function} for claim in claims]
            self._db.execute(insert(function_claims), rows)
        for vm in host_vms:
            if after[vm.id] != vm.devices:
                devices = [asdict(device) for device in after[vm.id]]
                self._db.execute(update(vms).where(vms.c.id == vm.id).values(devices=devices))


def _moved_row(row: dict[str, Any], column: str, address: str) -> dict[str, Any]:
    """With the addresses of those functions whose health is known, where the row has it."""
    moved = {**row, column: address}
    if row.get("health"):
        functions = [[moved_function(at, row[column], address), its] for at, its in row["health"].get("functions", ())]
        moved["health"] = {**row["health"], "functions": functions}
    return moved


def _row(host: str, card: GpuCard) -> dict[str, Any]:
    return {"its_host": host, "its_address": card.address, "uuid": card.uuid, "serial": card.serial}
