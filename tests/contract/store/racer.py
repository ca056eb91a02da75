# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.store.racer URL DIRECTORY SEED REQUESTS QUOTA``: one of several controllers that race.

Its second set of books are files that can be made only once: a slot that two VMs got fails there, whatever the
database says.
"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.adapters.state.clock import RandomIds
from orchestrator.core.errors import NoCapacity, QuotaExceeded
from orchestrator.operations.steps.vm_record import drop_vm
from tests.fakes.cleaned import CLEANED
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm

KEPT = 12
"""VMs a racer keeps at most; there are 16 slots of the size asked for most."""
COUNTED = ("made", "refused", "beyond", "double", "over")
SIZES = ("GRID T4-2Q", "GRID T4-2Q", "GRID T4-4Q", "GRID T4-16Q")


@dataclass
class Racer:
    plane: ControlPlane
    books: Path
    chance: random.Random
    quota: int
    own: dict[str, list[Path]] = field(default_factory=dict)
    """By name, the books of what it holds."""
    made: int = 0
    refused: int = 0
    double: int = 0
    beyond: int = 0
    """How often somebody was refused by the quota."""
    over: int = 0
    """How often more VMs were held than the quota allows."""

    def turn(self, name: str) -> None:
        """One request; room is made when there is none, or enough is held."""
        if len(self.own) >= KEPT:
            self._give_back()
        try:
            self.plane.services.vms.create(create_vm(name, profile=self.chance.choice(SIZES)))
        except (NoCapacity, QuotaExceeded) as error:
            self.beyond += isinstance(error, QuotaExceeded)
            self.refused += isinstance(error, NoCapacity)
            if self.own:
                self._give_back()
            return
        self.made += 1
        with self.plane.store.read() as tx:
            held = {vm.spec.name: vm.id for vm in tx.vms.list(tenant="default")}
            claim = tx.claims.find(held[name])
        assert claim is not None
        self.over += len(held) > self.quota
        self.own[name] = [self.books / f"{claim.host} {one.gpu} {slot}" for one in claim.devices for slot in one.slots]
        for file in self.own[name]:
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                self.double += 1

    def _give_back(self) -> None:
        name = self.chance.choice(list(self.own))
        for file in self.own.pop(name):
            file.unlink()
        with self.plane.store.begin() as tx:
            vm = tx.vms.find("default", name)
            assert vm is not None
            drop_vm(tx, vm, CLEANED)


def main(url: str, directory: str, seed: str, requests: str, quota: str) -> None:
    plane = control_plane(Path(directory), url=url)
    vms = plane.services.vms
    vms = replace(vms, planner=replace(vms.planner, ids=RandomIds()))
    plane = replace(plane, services=replace(plane.services, vms=vms))
    racer = Racer(plane, Path(directory), random.Random(seed), int(quota))
    for number in range(int(requests)):
        racer.turn(f"r{seed}-{number}")
    sys.stdout.write(json.dumps({name: getattr(racer, name) for name in COUNTED}))


if __name__ == "__main__":
    main(*sys.argv[1:])
