# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of a GPU whose vGPUs are virtual functions with NVIDIA's own VFIO files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.gpu_host import Step, answers, gpu_address, read, refusals, switches, write

pytestmark = pytest.mark.lab


class VendorGpu:
    def __init__(self, host: LabHost) -> None:
        self.host = host
        self.address = gpu_address(host.run, "NVIDIA L40S")
        self.switches = switches(host.run, self.address)
        pf = f"/sys/bus/pci/devices/{self.address}"
        self.had_functions = host.run(f"cat {pf}/sriov_numvfs").strip() != "0"
        host.run(f"/usr/lib/nvidia/sriov-manage -e {self.address}")
        vfs = host.run(f"ls -v -d {pf}/virtfn* | head -4 | xargs readlink -f").split()
        self.vfs = [f"{vf}/nvidia" for vf in vfs]
        rows = host.run(f"cat {self.vfs[0]}/creatable_vgpu_types").strip().splitlines()[1:]
        self.ids = {name: number.strip() for number, _, name in (row.partition(": ") for row in rows)}

    def file(self, vf: int, name: str = "current_vgpu_type") -> str:
        return f"{self.vfs[vf]}/{name}"

    def ask(self, *steps: Step) -> list[str]:
        return answers(self.host.run, steps)

    def clean(self) -> None:
        off = f"echo none >{self.switches}/fault_create; echo 0 >{self.switches}/lost"
        self.host.run(f'{off}; for f in {" ".join(self.vfs)}; do [ "$(cat $f/current_vgpu_type)" = 0 ] || '
                      "echo 0 >$f/current_vgpu_type; done")  # fmt: skip


@pytest.fixture(scope="module")
def vendor_gpu(l40s: LabHost) -> Iterator[VendorGpu]:
    """Its functions are off again at the end: a reboot, which other tests compare before and after, ends them too."""
    gpu = VendorGpu(l40s)
    yield gpu
    if not gpu.had_functions:
        l40s.run(f"/usr/lib/nvidia/sriov-manage -d {gpu.address}")


@pytest.fixture
def vendor(vendor_gpu: VendorGpu) -> Iterator[VendorGpu]:
    yield vendor_gpu
    vendor_gpu.clean()


@pytest.mark.parametrize(
    "value, answer",
    [
        ("0", "EPERM"),
        ("0x483", "EINVAL"),
        (" 1155", "EINVAL"),
        ("", "ok"),
        ("NVIDIA L40S-2Q", "EINVAL"),
        ("99999999999999999999", "ERANGE"),
        ("-1", "EINVAL"),
        ("4095", "EINVAL"),
    ],
)
def test_an_untyped_vf_answers_bad_writes_as_nvidias_driver_does(vendor: VendorGpu, value: str, answer: str) -> None:
    assert vendor.ask(write(vendor.file(0), value), read(vendor.file(0))) == [answer, "0"]


def test_a_typed_vf_takes_no_type_again_not_even_its_own(vendor: VendorGpu) -> None:
    quarter = vendor.ids["NVIDIA L40S-12Q"]
    assert vendor.ask(
        write(vendor.file(0), quarter + "\n"),
        read(vendor.file(0)),
        write(vendor.file(0), quarter),
        write(vendor.file(0), vendor.ids["NVIDIA L40S-12A"]),
        write(vendor.file(0), "0"),
        write(vendor.file(0), "0"),
    ) == ["ok", quarter, "EPERM", "EPERM", "ok", "EPERM"]


def test_creatable_types_shrink_to_one_size_and_then_to_the_header(vendor: VendorGpu) -> None:
    half = vendor.ids["NVIDIA L40S-24Q"]
    listing = vendor.file(3, "creatable_vgpu_types")
    first, one_size, second, header, refused = vendor.ask(
        write(vendor.file(0), half),
        read(listing),
        write(vendor.file(1), half),
        read(listing),
        write(vendor.file(2), half),
    )
    assert (first, second, header, refused) == ("ok", "ok", "ID    : vGPU Name", "EIO")
    assert {row.rpartition("-")[2][:-1] for row in one_size.splitlines()[1:]} == {"24"}


def test_a_vf_says_nothing_of_its_vgpu_before_there_is_one(vendor: VendorGpu) -> None:
    names = ("placement_id", "gpu_instance_id", "vgpu_params")
    assert vendor.ask(*(read(vendor.file(0, name)) for name in names)) == ["ENXIO"] * 3


def test_a_placement_moves_to_a_free_legal_place_only(vendor: VendorGpu) -> None:
    quarter = vendor.ids["NVIDIA L40S-12Q"]
    place = vendor.file(1, "placement_id")
    assert vendor.ask(
        write(vendor.file(0), quarter),
        write(vendor.file(1), quarter),
        read(place),
        write(place, "0"),
        write(place, "7"),
        write(place, "36"),
        read(place),
    ) == ["ok", "ok", "12", "EINVAL", "EINVAL", "ok", "36"]


def test_mixed_sizes_need_the_mode_and_the_mode_needs_an_empty_gpu(vendor: VendorGpu) -> None:
    quarter, half = vendor.ids["NVIDIA L40S-12Q"], vendor.ids["NVIDIA L40S-24Q"]
    smi = f"nvidia-smi vgpu -i 0000{vendor.address} -shm"
    assert vendor.ask(write(vendor.file(0), quarter), write(vendor.file(1), half)) == ["ok", "EIO"]
    assert "In use" in vendor.host.run(f"{smi} 1 || true")
    vendor.clean()
    vendor.host.run(f"{smi} 1")
    assert vendor.ask(
        write(vendor.file(0), half), write(vendor.file(1), quarter), read(vendor.file(1, "placement_id"))
    ) == ["ok", "ok", "24"]
    vendor.clean()
    vendor.host.run(f"{smi} 0")


def test_the_number_of_vfs_changes_through_sriov_manage_only(vendor: VendorGpu) -> None:
    pf = f"/sys/bus/pci/devices/{vendor.address}"
    assert vendor.ask(write(f"{pf}/sriov_numvfs", "0")) == ["EPERM"]
    vendor.ask(write(vendor.file(0), vendor.ids["NVIDIA L40S-12Q"]))
    off_and_on = f"/usr/lib/nvidia/sriov-manage -d {vendor.address}; /usr/lib/nvidia/sriov-manage -e {vendor.address}"
    vendor.host.run(off_and_on, limit_s=600)
    assert vendor.ask(read(vendor.file(0))) == ["0"]


def test_sriov_manage_cannot_have_the_lock_while_an_nvml_client_is_there(vendor: VendorGpu) -> None:
    client = (
        "import ctypes,sys; l=ctypes.CDLL('libnvidia-ml.so.1'); l.nvmlInit_v2(); print(flush=True); sys.stdin.read()"
    )
    command = f'coproc python3 -c "{client}"; read <&${{COPROC[0]}}; /usr/lib/nvidia/sriov-manage -d {vendor.address}'
    before = refusals(vendor.host.run)
    said = vendor.host.run(f"bash -c {shlex.quote(command + '; true')} 2>&1")
    assert f"Cannot obtain unbindLock for {vendor.address}" in said
    assert refusals(vendor.host.run) == before + 1
    assert vendor.ask(read(vendor.file(0))) == ["0"]


def test_pf_and_vf_are_nvidia_3d_controllers_to_the_host(vendor: VendorGpu) -> None:
    rows = vendor.host.run(f"lspci -nn -D -s {vendor.address[:-2]}").strip().splitlines()
    assert len(rows) > 1
    assert all("3D controller [0302]: NVIDIA Corporation" in row and "[10de:26b9]" in row for row in rows)
