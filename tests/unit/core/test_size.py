# SPDX-License-Identifier: Apache-2.0
"""Whichever way a resize ends, both sizes can still be had: what is held is at least what each of them takes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orchestrator.core.gpu.device import Device
from orchestrator.core.vms.claim import Claim, DeviceClaim
from orchestrator.core.vms.size import HeldSize, sizes_of, with_functions_of
from orchestrator.core.vms.vm import Vm, VmSpec

SLOTS = 8
GPUS = ("0000:01:00.0", "0000:02:00.0")
SPEC = VmSpec(
    name="train", tenant="default", profile="p", image="i", vcpus=1, memory_mib=1024, disk_bytes=2**30, network="n"
)


def vm(*devices: Device) -> Vm:
    return Vm(
        id="vm", spec=SPEC, state="running", host="h", devices=devices, addresses=(), operation=None, created_at=0.0
    )


def device(gpu: str, function: int | None = None) -> Device:
    parent = gpu if function is None else f"{gpu[:-1]}{function}"
    return Device(kind="vendor_vfio", gpu=gpu, parent=parent, type_name="t", name=parent)


def drawn(chance: random.Random) -> tuple[Vm, Claim]:
    """A size of some VM: on each GPU one cut, of several devices each its own slots and function."""
    devices, parts = [], []
    for gpu in chance.sample(GPUS, chance.randint(1, 2)):
        cut, slots = chance.choice(("small", "large")), chance.sample(range(SLOTS), chance.randint(1, 6))
        for number, taken in enumerate((slots[::2], slots[1::2])):
            if taken:
                devices.append(device(gpu, chance.randint(1, 3) + 3 * number))
                parts.append(DeviceClaim(gpu=gpu, cut=cut, slots=tuple(sorted(taken)), function=devices[-1].function))
    claim = Claim(
        vm="vm", host="h", devices=tuple(parts), vcpus=chance.randint(0, 9), memory_mib=chance.randint(0, 9),
        disk_bytes=5, cpus=tuple(chance.sample(range(9), 3)),
    )  # fmt: skip
    return vm(*devices), claim


def held_slots(size: HeldSize) -> dict[str, dict[int, str]]:
    """GPU → slot → cut; a slot that is held twice fails here."""
    held: dict[str, dict[int, str]] = {}
    for part in (*size.held.devices, *(size.beside.devices if size.beside is not None else ())):
        for slot in part.slots:
            assert slot not in held.setdefault(part.gpu, {}), "held twice"
            held[part.gpu][slot] = part.cut
    for cuts in held.values():
        assert len(set(cuts.values())) == 1, "a GPU is cut in one way"
    return held


@pytest.mark.parametrize("seed", range(300))
def test_what_is_held_of_one_size_covers_the_other(seed: int) -> None:
    chance = random.Random(seed)
    sizes = sizes_of(drawn(chance), drawn(chance), "place", lambda _gpu, _cut: SLOTS)
    for own, other in (sizes, sizes[::-1]):
        held = held_slots(own)
        for part in other.claim.devices:
            cuts = held[part.gpu]
            assert set(part.slots) <= cuts.keys() if part.cut in cuts.values() else len(cuts) == SLOTS
        assert own.held.vcpus >= other.claim.vcpus
        assert own.held.memory_mib >= other.claim.memory_mib
        assert set(own.held.cpus) >= set(other.claim.cpus)
        assert own.beside is None or len(own.beside.devices) == len(own.beside_devices) > 0
        functions = [part.function for part in (*own.held.devices, *(own.beside.devices if own.beside else ()))]
        named = [function for function in functions if function is not None]
        assert len(set(named)) == len(named), "a function is held once"


def test_a_vm_keeps_its_functions_on_a_gpu_that_it_stays_on() -> None:
    before = (device(GPUS[0], 2), device(GPUS[1], 5))
    after = with_functions_of(before, (device(GPUS[0], 1), device(GPUS[0], 3)))
    assert [(one.parent, one.name) for one in after] == [(before[0].parent,) * 2, (device(GPUS[0], 3).parent,) * 2]
    on_gpu = replace(device(GPUS[0]), kind="mdev", name="uuid")
    assert with_functions_of(before, (on_gpu,)) == (on_gpu,)
