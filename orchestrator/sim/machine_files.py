# SPDX-License-Identifier: Apache-2.0
"""What happened on machines, as a file each: so that hosts outlive the server, as real ones do.

Kept is what the fleet file does not say. A machine on which nothing happened yet has no file.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from pydantic import PlainSerializer, PlainValidator, TypeAdapter

from orchestrator.core.errors import Fatal
from orchestrator.sim.kernel import Kernel, SimulatedGpu
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.pools import SimulatedPool

_Range = Annotated[
    range, PlainValidator(lambda ends: range(*ends)), PlainSerializer(lambda place: (place.start, place.stop))
]


def _members(kind: type, names: set[str]) -> dict[str, TypeAdapter[Any]]:
    types = get_type_hints(kind) | ({"places": dict[str, _Range]} if kind is Kernel else {})
    return {name: TypeAdapter(types[name]) for name in sorted(names)}


def _names(kind: type[SimulatedGpu | Kernel]) -> set[str]:
    return {field.name for field in fields(kind)}


_KEPT: Final = {
    SimulatedGpu: _members(SimulatedGpu, _names(SimulatedGpu) - {"address", "kind", "card", "module_id"}),
    Kernel: _members(
        Kernel,
        _names(Kernel) - {"gpus", "fabric", "nics", "next_errno", "stuck_resets", "harmed"},
    ),
    SimulatedMachine: _members(
        SimulatedMachine,
        {
            "boot", "driver_version", "up_at", "ledger", "domains", "volumes", "bases", "seeds", "nvram", "data",
            "images", "networks", "signals",
        },
    ),
}  # fmt: skip


_POOL: Final = TypeAdapter(SimulatedPool)


class MachineFiles:
    """Below one directory, by address."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def keep(self, address: str, machine: SimulatedMachine) -> None:
        """Whole or not at all."""
        part = self._directory / f".{address}.part"
        kernel = machine.kernel
        state = {
            "models": [gpu.kind.model for gpu in kernel.gpus],
            "gpus": [_plain(gpu) for gpu in kernel.gpus],
            "kernel": _plain(kernel),
            "active_partitions": sorted(kernel.fabric.active) if kernel.fabric is not None else [],
            "machine": _plain(machine),
            "backups": machine.backups,
        }
        part.write_text(json.dumps(state))
        part.replace(self._directory / address)
        for name, pool in machine.pools.items():
            part.write_bytes(_POOL.dump_json(pool))
            part.replace(self._directory / f"{name}.pool")

    def restore(self, address: str, machine: SimulatedMachine) -> bool:
        """Put what was kept onto the machine; False when nothing was.

        :raises Fatal: ``fleet.differs`` when it had other GPUs then
        """
        for name, pool in machine.pools.items():
            if (shared := self._directory / f"{name}.pool").exists():
                kept_pool = _POOL.validate_json(shared.read_bytes())
                for member in fields(SimulatedPool):
                    setattr(pool, member.name, getattr(kept_pool, member.name))
        file = self._directory / address
        if not file.exists():
            return False
        kept = json.loads(file.read_text())
        kernel = machine.kernel
        if kept.get("models") != [gpu.kind.model for gpu in kernel.gpus]:
            raise Fatal(
                "fleet.differs",
                f"host {address} has other GPUs than when this server ran before",
                hint="give the host another name, or begin with an empty state directory",
            )
        for gpu, state in zip(kernel.gpus, kept["gpus"], strict=True):
            _put(gpu, state)
        if kernel.fabric is not None:
            kernel.fabric.active = set(kept["active_partitions"])
        _put(kernel, kept["kernel"])
        _put(machine, kept["machine"])
        machine.backups.update(kept.get("backups", {}))
        return True


def _plain(thing: object) -> dict[str, Any]:
    return {name: kind.dump_python(getattr(thing, name), mode="json") for name, kind in _KEPT[type(thing)].items()}


def _put(thing: object, state: dict[str, Any]) -> None:
    for name, value in state.items():
        setattr(thing, name, _KEPT[type(thing)][name].validate_python(value))
