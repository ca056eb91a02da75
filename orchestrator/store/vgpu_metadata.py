# SPDX-License-Identifier: Apache-2.0
"""What drivers last said of the vGPUs of VMs: known as well while a VM is stopped or its host is away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import bindparam, insert, select, update

from orchestrator.store.statements import InClause, Precompiled, Statements
from orchestrator.store.tables import vgpu_metadata as table

ByGpu = Mapping[str, tuple[str, ...]]
"""PCI address of a GPU → metadata of the VM's vGPUs on it, in base64, each once and in their order."""

_OF_VMS: Final = InClause(lambda vms: select(table).where(table.c.vm.in_(vms)))
_ADD: Final = Precompiled(insert(table))
_CHANGE: Final = Precompiled(update(table).where(table.c.vm == bindparam("its_vm")))


class VgpuMetadata:
    def __init__(self, db: Statements) -> None:
        self._db = db

    def of(self, vm: str) -> ByGpu:
        """Empty: nobody has said anything."""
        return self._of([vm]).get(vm, {})

    def keep(self, of_vms: Mapping[str, ByGpu]) -> None:
        """Of VMs that there are, by id."""
        kept = self._of(list(of_vms))
        for vm, by_gpu in of_vms.items():
            if vm not in kept:
                self._db.execute(_ADD, {"vm": vm, "by_gpu": by_gpu})
            elif kept[vm] != by_gpu:
                self._db.execute(_CHANGE, {"its_vm": vm, "by_gpu": by_gpu})

    def _of(self, vms: list[str]) -> dict[str, ByGpu]:
        rows = self._db.execute(*_OF_VMS(vms)) if vms else ()
        return {row.vm: {gpu: tuple(texts) for gpu, texts in row.by_gpu.items()} for row in rows}
