# SPDX-License-Identifier: Apache-2.0
"""What an operation would make is there before it: it answers that nothing was changed, and taking back leaves it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.operations.context import Context
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.step import Definition
from tests.fakes.fake_host import Strike
from tests.fakes.fake_machine import FakeMachine
from tests.operations.scene import NOTHING_TO_TAKE_BACK, SCENES, Stage, World, stage

TWO_WAY = [one for one in SCENES if not (one.forward_only or one.kind in NOTHING_TO_TAKE_BACK)]
TAKEN_AWAY = frozenset(
    {"release_mig", "provision_host", "upgrade_driver", "move_vm", "move_vm_cold", "move_running_vm"}
    | {"evacuate_vm", "evacuate_stopped_vm", "suspend_vm", "resume_vm", "create_snapshot"}
    | {"back_up_vm", "restore_backup", "restore_snapshot", "create_image", "reset_gpu"}
    | {"create_volume_snapshot", "restore_volume_snapshot", "copy_volume", "fetch_volume"}
)
"""What they do takes something away, or brings another driver, so that taking them back removes nothing. What a host
has of a VM that is on another one was left by an earlier move: it is replaced, and goes. A VM runs, or its memory is
on disk. Files of snapshots and copies have names that were drawn for them, and so has a backup. A
GPU that is reset goes back to its driver."""

SPARED = frozenset(
    {"resize running mdev", "create from snapshot", "create from backup", "read volume", "create with a volume to read"}
    | {"boot backup", "read a volume in a pool", "create in a pool with a volume to read"}
)
"""Its GPU has no room for what was there before beside what it puts back; its disk is a copy, whose name was drawn, and
so was that by which it reads a volume."""


@pytest.fixture(scope="module", params=[pytest.param(one, id=one.name.replace(" ", "-")) for one in TWO_WAY])
def staged(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(request.param) as made:
        yield made


def failing() -> dict[str, Definition]:
    """All that an operation does is done, and then it fails."""

    def fail(_: Context) -> str:
        raise Fatal("test.refused", "it was refused")

    fails = {kind: replace(one.steps[-1], do=fail) for kind, one in DEFINITIONS.items()}
    return {kind: replace(one, steps=(*one.steps[:-1], fails[kind])) for kind, one in DEFINITIONS.items()}


def course(made: Stage) -> list[dict[str, FakeMachine]]:
    """The machines after each effect."""
    after: list[dict[str, FakeMachine]] = []

    def keep(world: World) -> Strike:
        def strike(_number: int, moment: str, _name: str) -> None:
            if moment == "after":
                after.append(copy.deepcopy(world.plane.hosts.machines))

        return strike

    with made.world() as world:
        world.plane.hosts.strike = keep(world)
        assert world.run().state == "done"
        return after


def things(machines: dict[str, FakeMachine]) -> set[str]:
    """What somebody may use, or has data on. Settings of GPUs and empty GPU instances of VMs are not."""
    return {f"{name}: {thing}" for name, machine in machines.items() for thing in _things(machine)}


def _things(machine: FakeMachine) -> Iterator[str]:
    yield from () if machine.ledger.site is None else ("agent",)
    yield from (f"GPU {gpu} is ours" for gpu in machine.managed)
    yield from (f"domain {vm}" for vm in machine.domains)
    yield from (f"running {vm}" for vm, (_, running) in machine.domains.items() if running)
    yield from (f"adopted {vm}" for vm in machine.adopted)
    yield from (f"file {file}" for file in (*machine.volumes, *machine.seeds, *machine.data))
    yield from (f"{file} of {vm}" for file, (_, vm) in machine.data.items() if vm is not None)
    yield from (f"vGPU {name}" for name in (*machine.mdevs, *machine.vf_types))
    yield from (f"file {file} of pool {name}" for name, pool in machine.pools.items() for file in pool.files)
    yield from (f"network {name}" for name in machine.networks)
    yield from (f"function {name} of {vm}" for name, vm in machine.nic_owners.items())
    for gpu in machine.gpus:
        yield from () if gpu.passed_to is None else (f"GPU {gpu.address} of {gpu.passed_to[0]}",)
        yield from (f"layout at {start}" for start, (_, holders) in gpu.instances.items() if KEEPER in holders)


def test_what_was_there_before_an_operation_is_there_after_it_was_taken_back(staged: Stage) -> None:
    if staged.scene.kind in TAKEN_AWAY or staged.scene.name in SPARED:
        return
    after = course(staged)
    for number, machines in enumerate(after):
        with staged.world() as world:
            there = things(machines)
            world.plane.hosts.reset(copy.deepcopy(machines))
            world.run(failing())
            assert world.operation.state == "undone", (number, world.operation)
            assert there - things(world.plane.hosts.machines) == set(), f"with effect {number} there before"
