# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of a GPU whose vGPUs are mediated devices of its physical function."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.gpu_host import Step, answers, gpu_address, read, switches, write

pytestmark = pytest.mark.lab

FIRST = "11111111-2222-4333-8444-555555555501"
SECOND = "11111111-2222-4333-8444-555555555502"


class MdevGpu:
    def __init__(self, host: LabHost) -> None:
        self.host = host
        self.address = gpu_address(host.run, "Tesla T4")
        self.types = f"/sys/class/mdev_bus/{self.address}/mdev_supported_types"
        self.switches = switches(host.run, self.address)
        self.ids = self._ids()

    def _ids(self) -> dict[str, str]:
        rows = self.host.run(f"cd {self.types}; grep . */name").strip().splitlines()
        return {name: path.split("/")[0] for path, _, name in (row.partition(":") for row in rows)}

    def create(self, name: str) -> str:
        return f"{self.types}/{self.ids[name]}/create"

    def available(self, name: str) -> str:
        return f"{self.types}/{self.ids[name]}/available_instances"

    def ask(self, *steps: Step) -> list[str]:
        return answers(self.host.run, steps)

    def clean(self) -> None:
        remove = (
            f"for m in /sys/bus/pci/devices/{self.address}/????????-*; do [ -e $m ] && echo 1 >$m/remove; done; true"
        )
        self.host.run(f"echo none >{self.switches}/fault_create; echo 0 >{self.switches}/lost; {remove}")


@pytest.fixture(scope="module")
def mdev_gpu(t4: LabHost) -> MdevGpu:
    return MdevGpu(t4)


@pytest.fixture
def mdev(mdev_gpu: MdevGpu) -> Iterator[MdevGpu]:
    yield mdev_gpu
    mdev_gpu.clean()


@pytest.mark.parametrize(
    "value, answer",
    [
        ("11111111-2222", "EINVAL"),
        ("{11111111-2222-4333-8444-555555555501}", "EINVAL"),
        ("1111111122224333844455555555550111111111", "EINVAL"),
        ("zzzzzzzz-2222-4333-8444-555555555501", "EINVAL"),
        (FIRST + "\n", "ok"),
        (FIRST.upper(), "ok"),
    ],
)
def test_an_mdev_takes_a_plain_uuid_and_nothing_else(mdev: MdevGpu, value: str, answer: str) -> None:
    assert mdev.ask(write(mdev.create("GRID T4-1Q"), value)) == [answer]


def test_an_mdev_uuid_is_taken_once_on_the_whole_host_whatever_its_case(mdev: MdevGpu) -> None:
    twice = [write(mdev.create("GRID T4-1Q"), FIRST), write(mdev.create("GRID T4-1Q"), FIRST.upper())]
    assert mdev.ask(*twice) == ["ok", "EEXIST"]


def test_the_first_mdev_of_a_gpu_fixes_its_size_until_the_last_one_goes(mdev: MdevGpu) -> None:
    small, same, big = "GRID T4-1Q", "GRID T4-1B", "GRID T4-2Q"
    assert mdev.ask(
        read(mdev.available(small)),
        write(mdev.create(small), FIRST),
        read(mdev.available(small)),
        read(mdev.available(same)),
        read(mdev.available(big)),
        write(mdev.create(big), SECOND),
        write(f"/sys/bus/mdev/devices/{FIRST}/remove", "1"),
        read(mdev.available(big)),
    ) == ["16", "ok", "15", "15", "0", "EIO", "ok", "8"]


def test_a_t4_carries_sixteen_mdevs_and_refuses_the_next(mdev: MdevGpu) -> None:
    creates = [write(mdev.create("GRID T4-1Q"), str(uuid.UUID(int=number, version=4))) for number in range(1, 18)]
    assert mdev.ask(*creates) == ["ok"] * 16 + ["EIO"]


def test_an_mdev_has_parameters_but_no_placement_on_a_gpu_without_them(mdev: MdevGpu) -> None:
    nvidia = f"/sys/bus/mdev/devices/{FIRST}/nvidia"
    assert mdev.ask(
        write(mdev.create("GRID T4-1Q"), FIRST),
        write(f"{nvidia}/vgpu_params", "frame_rate_limiter=0\n"),
        read(f"{nvidia}/vgpu_params"),
        write(f"{nvidia}/vgpu_params", " "),
        read(f"{nvidia}/vgpu_params"),
        read(f"{nvidia}/placement_id"),
        read(f"{nvidia}/current_vgpu_type"),
    ) == ["ok", "ok", "frame_rate_limiter=0", "ok", "", "ENXIO", "ENOENT"]


@pytest.mark.parametrize(
    "fault, answer", [("busy", "EBUSY"), ("io", "EIO")], ids=["the driver is busy", "the driver refuses"]
)
def test_a_switched_on_failure_hits_one_create_and_is_gone(mdev: MdevGpu, fault: str, answer: str) -> None:
    create = write(mdev.create("GRID T4-1Q"), FIRST)
    assert mdev.ask(write(f"{mdev.switches}/fault_create", fault), create, create) == ["ok", answer, "ok"]


def test_a_hanging_create_finishes_late_with_the_vgpu_made(mdev: MdevGpu) -> None:
    started = f"echo hang 100 >{mdev.switches}/fault_create; (echo {FIRST} >{mdev.create('GRID T4-1Q')}) & "
    seen = mdev.host.run(
        f"{started} sleep 2; cat {mdev.available('GRID T4-1Q')}; echo none >{mdev.switches}/fault_create; wait; "
        f"cat {mdev.available('GRID T4-1Q')}"
    )
    assert seen.split() == ["16", "15"]


def test_a_lost_gpu_creates_nothing_and_nvml_says_so(mdev: MdevGpu) -> None:
    mdev.host.run(f"echo 1 >{mdev.switches}/lost")
    assert mdev.ask(write(mdev.create("GRID T4-1Q"), FIRST)) == ["EIO"]
    assert "GPU is lost" in mdev.host.run(f"nvidia-smi -i 0000{mdev.address} || true")


def test_an_xid_reaches_the_kernel_log_in_the_drivers_words(mdev: MdevGpu) -> None:
    mdev.host.run(f"echo 79 GPU has fallen off the bus. >{mdev.switches}/xid")
    line = mdev.host.run("dmesg | grep 'NVRM: Xid' | tail -1")
    mdev.host.run(f"echo vgpuctl: GPU {mdev.address} was reset >/dev/kmsg")  # whoever comes next finds it well
    assert f"NVRM: Xid (PCI:{mdev.address[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off" in line
