# SPDX-License-Identifier: Apache-2.0
"""Where VMs of the fake :class:`tests.fakes.world.World` may move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.host import Host
from orchestrator.core.moves.verdicts import KINDS, HostMoves, MoveKind, MoveLimit, MoveVerdict
from orchestrator.core.vms.disk_snapshot import DiskSnapshot, find_snapshot
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import Started
from tests.fakes.world import GPU, World


class Moves:
    """Every VM runs on ``gpu1``, and may move to ``gpu2`` in every way but live."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _known(self, tenant: str, name: str) -> None:
        if (tenant, name) not in self._world.vms:
            raise NotFound("vm.unknown", f"no VM is called {name[:63]!a}", hint="vgpuctl list-vms")

    def own(self, tenant: str, name: str) -> tuple[MoveVerdict, ...]:
        self._known(tenant, name)
        return tuple(MoveVerdict(kind=kind, limits=()) for kind in KINDS)

    def of_vm(
        self, tenant: str, name: str, *, after: str | None = None, most: int, legal: MoveKind | None = None
    ) -> tuple[HostMoves, ...]:
        self._known(tenant, name)
        moves = (self.to_host(tenant, name, host) for host in ("gpu1", "gpu2") if host > (after or ""))
        return tuple(to for to in moves if legal is None or to.may(legal))[:most]

    def to_host(self, tenant: str, name: str, host: str) -> HostMoves:
        self._known(tenant, name)
        if host not in {"gpu1", "gpu2"}:
            raise NotFound("host.unknown", f"no host is called {host[:63]!a}")
        limit = MoveLimit(
            code="move.ecc", message="ECC is off, now on", cure="'nvidia-smi -e 1' and a reset of the GPU"
        )
        verdicts = tuple(MoveVerdict(kind=kind, limits=(limit,) if kind == "live" else ()) for kind in KINDS)
        return HostMoves(host=host, is_its_own=host == "gpu1", verdicts=verdicts, gpus=(GPU,))

    def load(self, _host: Host, _vm: Vm) -> None:
        """Nobody measures it."""

    def how_many(self) -> int:
        return 2


class Suspension:
    """Of the world's VMs; each keeps a gibibyte."""

    def __init__(self, world: World) -> None:
        self._world = world

    def suspend(self, tenant: str, name: str) -> Started:
        return self._change("suspend_vm", tenant, name, {"state": "stopped", "suspended_bytes": 1024**3})

    def resume(self, tenant: str, name: str) -> Started:
        self._suspended(tenant, name)
        return self._change("resume_vm", tenant, name, {"state": "running", "suspended_bytes": None})

    def discard(self, tenant: str, name: str) -> Started:
        self._suspended(tenant, name)
        return self._change("discard_suspended_vm", tenant, name, {"suspended_bytes": None})

    def _known(self, tenant: str, name: str) -> Vm:
        if (tenant, name) not in self._world.vms:
            raise NotFound("vm.unknown", f"no VM is called {name[:63]!a}", hint="vgpuctl list-vms")
        return self._world.vms[tenant, name]

    def _suspended(self, tenant: str, name: str) -> None:
        if self._known(tenant, name).suspended_bytes is None:
            raise Conflict("vm.not_suspended", f"VM {name} is not suspended", hint="vgpuctl list-vms")

    def _change(self, kind: str, tenant: str, name: str, members: dict[str, Any]) -> Started:
        vm = self._known(tenant, name)

        def changed() -> None:
            self._world.vms[tenant, name] = replace(vm, **members)

        return Started(operation=self._world.begin(kind, vm.id, tenant, changed, vm.full_name), name=name)


class Snapshots(Suspension):
    """Of the disks of the world's VMs."""

    def list(self, tenant: str, name: str) -> tuple[DiskSnapshot, ...]:
        return self._known(tenant, name).snapshots

    def create(self, tenant: str, name: str, snapshot: str, *, volumes: bool = False) -> Started:
        vm = self._known(tenant, name)
        if any(one.name == snapshot for one in vm.snapshots):
            raise Conflict("snapshot.exists", "there is one", hint=f"'vgpuctl vm snapshot list {name}' shows it")
        taken = DiskSnapshot(
            id=f"{len(vm.snapshots):032}", name=snapshot, size_bytes=vm.spec.disk_bytes, created_at=0.0,
            taken_of="running" if vm.state == "running" else "stopped",
            volumes=(f"data.{vm.id}", f"logs.{vm.id}") if volumes else (),
        )  # fmt: skip
        return self._change("create_snapshot", tenant, name, {"snapshots": (*vm.snapshots, taken)})

    def delete(self, tenant: str, name: str, snapshot: str) -> Started:
        vm = self._known(tenant, name)
        gone = find_snapshot(vm.snapshots, snapshot, name)
        left = tuple(one for one in vm.snapshots if one != gone)
        return self._change("delete_snapshot", tenant, name, {"snapshots": left})

    def restore(self, tenant: str, name: str, snapshot: str) -> Started:
        find_snapshot(self._known(tenant, name).snapshots, snapshot, name)
        return self._change("restore_snapshot", tenant, name, {})
