# SPDX-License-Identifier: Apache-2.0
"""What happened on machines, as a file each: so that hosts outlive the server, as real ones do.

Kept is what the fleet file does not say. A machine on which nothing happened yet has no file.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from orchestrator.core.errors import Fatal
from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.sim.machine import Domain, SimulatedLedger, SimulatedMachine


class MachineFiles:
    """Below one directory, by address."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def keep(self, address: str, machine: SimulatedMachine) -> None:
        """Whole or not at all."""
        part = self._directory / f".{address}.part"
        part.write_text(json.dumps(_to_dict(machine)))
        part.replace(self._directory / address)

    def restore(self, address: str, machine: SimulatedMachine) -> bool:
        """Put what was kept onto the machine; False when nothing was.

        :raises Fatal: ``fleet.differs`` when it had other GPUs then
        """
        file = self._directory / address
        if not file.exists():
            return False
        kept = json.loads(file.read_text())
        if kept["gpus"] != [gpu.kind.model for gpu in machine.kernel.gpus]:
            raise Fatal(
                "fleet.differs",
                f"host {address} has other GPUs than when this server ran before",
                hint="give the host another name, or begin with an empty state directory",
            )
        _onto(machine, kept)
        return True


def _to_dict(machine: SimulatedMachine) -> dict[str, Any]:
    kernel, ledger = machine.kernel, machine.ledger
    return {
        "gpus": [gpu.kind.model for gpu in kernel.gpus],
        "functions": [gpu.functions for gpu in kernel.gpus],
        "drivers": [gpu.driver for gpu in kernel.gpus],
        "mdevs": kernel.mdevs,
        "typed": kernel.typed,
        "inside": kernel.inside,
        "parameters": kernel.parameters,
        "mig": [gpu.mig for gpu in kernel.gpus],
        "instances": [sorted(gpu.instances.items()) for gpu in kernel.gpus],
        "schedulers": [dataclasses.asdict(gpu.scheduler) for gpu in kernel.gpus],
        "mixes": [gpu.mixes for gpu in kernel.gpus],
        "places": {name: (place.start, place.stop) for name, place in kernel.places.items()},
        "nic_vfio": kernel.nic_vfio,
        "opened": sorted(kernel.opened),
        "active_partitions": sorted(kernel.fabric.active) if kernel.fabric is not None else [],
        "boot": machine.boot,
        "driver_version": machine.driver_version,
        "up_at": machine.up_at,
        "ledger": {**dataclasses.asdict(ledger), "managed": sorted(ledger.managed)},
        "domains": {uuid: dataclasses.asdict(domain) for uuid, domain in machine.domains.items()},
        "volumes": machine.volumes,
        "bases": machine.bases,
        "seeds": machine.seeds,
        "nvram": sorted(machine.nvram),
        "data": machine.data,
        "images": sorted(machine.images),
        "networks": machine.networks,
    }


def _onto(machine: SimulatedMachine, kept: dict[str, Any]) -> None:
    kernel = machine.kernel
    for gpu, functions in zip(kernel.gpus, kept["functions"], strict=True):
        gpu.functions = functions
    for gpu, mig, instances in zip(kernel.gpus, kept.get("mig", ()), kept.get("instances", ()), strict=False):
        gpu.mig, gpu.instances = mig, {number: (profile, start) for number, (profile, start) in instances}
    kernel.inside, kernel.parameters = kept.get("inside", {}), kept.get("parameters", {})
    for gpu, driver in zip(kernel.gpus, kept.get("drivers", ()), strict=False):  # a file of before has none
        gpu.driver = driver
    for gpu, scheduler in zip(kernel.gpus, kept.get("schedulers", ()), strict=False):
        gpu.scheduler = SchedulerState(**scheduler)
    for gpu, mixes in zip(kernel.gpus, kept.get("mixes", ()), strict=False):
        gpu.mixes = mixes
    kernel.places = {name: range(start, stop) for name, (start, stop) in kept.get("places", {}).items()}
    if kernel.fabric is not None:
        kernel.fabric.active = set(kept.get("active_partitions", ()))
    kernel.mdevs = {uuid: (parent, name) for uuid, (parent, name) in kept["mdevs"].items()}
    kernel.typed, kernel.opened = kept["typed"], set(kept["opened"])
    kernel.nic_vfio = kept.get("nic_vfio", {})  # a file of before has none
    ledger = kept["ledger"]
    owners = {key: (vm, boot) for key, (vm, boot) in ledger["owners"].items()}
    passed = {gpu: (model, functions) for gpu, (model, functions) in ledger.get("passed", {}).items()}
    settings = {
        table: {gpu: (boot, text) for gpu, (boot, text) in before.items()}
        for table, before in ledger.get("settings", {}).items()
    }
    renewed = {"owners": owners, "managed": frozenset(ledger["managed"]), "passed": passed, "settings": settings}
    known = {field.name for field in dataclasses.fields(SimulatedLedger)}  # a file of before has others
    machine.ledger = SimulatedLedger(**{**{name: ledger[name] for name in known & ledger.keys()}, **renewed})
    machine.boot = kept["boot"]
    machine.driver_version = kept.get("driver_version", machine.driver_version)  # a file of before has none
    machine.up_at = kept.get("up_at", 0.0)
    machine.domains = {
        uuid: Domain(**{**domain, **{name: tuple(domain.get(name, ())) for name in ("devices", "data", "affinity")}})
        for uuid, domain in kept["domains"].items()
    }
    machine.volumes, machine.seeds = kept["volumes"], kept["seeds"]
    machine.bases = kept.get("bases", {})
    machine.data, machine.nvram = kept.get("data", {}), set(kept.get("nvram", ()))  # a file of before has none
    machine.images = set(kept["images"])
    networks = kept["networks"]
    machine.networks = networks if isinstance(networks, dict) else dict.fromkeys(networks)  # of before: names alone
