# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.hosts.readiness import HostOvnFact, Requirement, requirements
from orchestrator.core.units import GIB
from tests.fakes.readiness import READY


def _wanting(**changes: Any) -> list[Requirement]:
    return [one for one in requirements(replace(READY, **changes)) if one.state != "ok"]


def test_a_host_that_has_everything_lacks_nothing() -> None:
    found = requirements(READY)
    assert [one.state for one in found] == ["ok"] * len(found)
    assert all(one.remedy is None and one.found for one in found)


@pytest.mark.parametrize(
    ("changes", "name", "remedy"),
    [
        ({"systemd": False}, "systemd", "use a host that systemd runs"),
        ({"architecture": "aarch64"}, "architecture", "use a host with processors of x86_64"),
        ({"python": (3, 9)}, "Python", "3.10 or newer"),
        ({"python": ()}, "Python", "3.10 or newer"),
        ({"iommu_groups": 0, "command_line": "quiet"}, "IOMMU", "add intel_iommu=on iommu=pt to"),
        ({"iommu_groups": 0, "command_line": "quiet", "amd": True}, "IOMMU", "add iommu=pt to"),
        ({"iommu_groups": 0}, "IOMMU", "the kernel's arguments are right"),
        ({"modules": ("nvidia",)}, "vfio", "modprobe vfio-pci"),
        ({"modules": ("vfio_pci", "nouveau")}, "nouveau", "blacklist nouveau"),
        ({"libvirt_listens": False}, "libvirt daemon", "start it"),
        ({"libvirt": None}, "libvirt", "10.0 or newer"),
        ({"libvirt": "9.0.0"}, "libvirt", "10.0 or newer"),
        ({"libvirt": "7.6.0", "gpus": (replace(READY.gpus[0], takes_types=False),)}, "libvirt", "8.0 or newer"),
        ({"qemu": "5.2.0"}, "QEMU", "6.2 or newer"),
        ({"gpus": ()}, "GPUs", "lspci -d 10de:"),
        ({"driver": None}, "driver", "install NVIDIA's vGPU host driver"),
        ({"driver": None, "headers": False}, "driver", "headers of kernel 6.12.48+deb13-amd64 first"),
        ({"driver": None, "secure_boot": True}, "driver", "Secure Boot is on"),
        ({"nvswitches": True}, "fabric manager", "in the driver's version"),
        ({"nvswitches": True, "fabric_manager": "580.65.06"}, "fabric manager", "in the driver's version"),
        ({"storage_free_bytes": 19 * GIB}, "disk", "make 20GiB free"),
    ],
)
def test_each_thing_that_is_missing_has_its_remedy(changes: dict[str, Any], name: str, remedy: str) -> None:
    wanting = next(one for one in _wanting(**changes) if one.name == name)
    assert wanting.state == "missing"
    assert remedy in (wanting.remedy or "")


def test_libvirt_of_debian_12_does_for_mediated_devices() -> None:
    assert _wanting(libvirt="9.0.0", gpus=(replace(READY.gpus[0], takes_types=False),)) == []


@pytest.mark.parametrize(
    ("driver", "arguments", "remedy"),
    [
        ("vfio-pci", "quiet vfio-pci.ids=10de:2331", "take vfio-pci.ids=10de:2331 out"),
        ("vfio-pci", "vfio_pci.ids=15b3:101d,10DE:20b5 quiet", "take vfio_pci.ids=15b3:101d,10DE:20b5 out"),
        (
            "vfio-pci",
            "vfio-pci.ids=8086:1521",
            "unless VMs have them: take what binds them to vfio-pci out of",
        ),
        ("vfio-pci", "quiet", "/etc/modprobe.d"),
        ("pci-stub", "pci-stub.ids=10de:26b9", "take pci-stub.ids=10de:26b9 out"),
        ("pci-stub", "quiet", "take what binds them to pci-stub out of /etc/modprobe.d"),
    ],
)
def test_gpus_that_another_driver_has_are_named_with_what_to_do(driver: str, arguments: str, remedy: str) -> None:
    passed = replace(READY.gpus[0], driver=driver)
    wanting = next(one for one in _wanting(gpus=(passed,), command_line=arguments) if one.name == "GPUs")
    assert (wanting.state, f"{driver} has {passed.address}" in wanting.found) == ("advice", True)
    assert remedy in (wanting.remedy or "")


def test_a_host_without_kvm_is_told_and_not_refused() -> None:
    assert [(one.name, one.state) for one in _wanting(kvm=False)] == [("KVM", "advice")]


def test_a_host_that_confines_nothing_is_told_what_it_means_and_not_refused() -> None:
    (wanting,) = _wanting(confinement=None)
    assert (wanting.name, wanting.state) == ("confinement", "advice")
    assert "--allow-unconfined" in (wanting.remedy or "")


def test_a_host_without_uefi_firmware_for_vms_is_told_which_package_brings_it() -> None:
    (wanting,) = _wanting(features=("tpm",))
    assert (wanting.name, wanting.state) == ("UEFI for VMs", "advice")
    assert "edk2-ovmf" in (wanting.remedy or "")


def test_large_pages_that_nothing_is_mounted_for_are_told_and_not_refused() -> None:
    (wanting,) = _wanting(huge_pages_1g=8)
    assert (wanting.name, wanting.state) == ("huge pages", "advice")
    assert "prepare-host.yml" in (wanting.remedy or "")
    assert _wanting(huge_pages_1g=8, large_pages_mounted=True) == []


def test_what_the_switches_of_a_b200_lack_is_named() -> None:
    (wanting,) = _wanting(nvswitches=True, fabric_manager=READY.driver, switches_lack=("nvlsm", "ib_umad"))
    assert (wanting.name, wanting.state) == ("subnet manager", "advice")
    assert wanting.found.startswith("no nvlsm and no ib_umad")


def test_a_fabric_manager_of_the_drivers_version_and_dcgm_are_shown() -> None:
    found = {
        one.name: (one.state, one.found)
        for one in requirements(
            replace(READY, nvswitches=True, fabric_manager="580.65.05", dcgm="4.4.1", huge_pages_2m=512)
        )
    }
    assert found["fabric manager"] == ("ok", "580.65.05")
    assert found["DCGM"] == ("ok", "4.4.1")
    assert found["huge pages"] == ("ok", "512 of 2M")


@pytest.mark.parametrize(("ovn", "state", "found"), [
    (HostOvnFact(version=None, remote=None, connected=False), "ok", "not installed, NAT and bridges need none"),
    (HostOvnFact(version="23.03.1", remote=None, connected=False), "advice", "23.03.1, and it is in none"),
    (HostOvnFact(version="23.03.1", remote="ssl:192.0.2.41:6642", connected=False), "advice",
     "23.03.1, no answer of ssl:192.0.2.41:6642"),
    (HostOvnFact(version="23.03.1", remote="ssl:192.0.2.41:6642", connected=True), "ok",
     "23.03.1, connected to ssl:192.0.2.41:6642"),
])  # fmt: skip
def test_a_host_says_which_ovn_it_is_in(ovn: HostOvnFact, state: str, found: str) -> None:
    (told,) = (one for one in requirements(replace(READY, ovn=ovn)) if one.name == "OVN")
    assert (told.state, told.found, told.remedy is None) == (state, found, state == "ok")


def test_a_host_whose_label_asks_for_ovn_and_that_has_none_is_told_what_brings_it() -> None:
    none = replace(READY, ovn=HostOvnFact(version=None, remote=None, connected=False))
    (told,) = (one for one in requirements(none, in_ovn=True) if one.name == "OVN")
    assert (told.state, "vgpuctl host provision" in str(told.remedy)) == ("advice", True)


def test_everything_that_a_bare_host_lacks_is_in_one_list() -> None:
    bare = _wanting(
        iommu_groups=0, command_line="", modules=("nouveau",), libvirt=None, qemu=None, libvirt_listens=False,
        driver=None, headers=False, storage_free_bytes=0,
    )  # fmt: skip
    assert [one.name for one in bare] == [
        "IOMMU", "vfio", "nouveau", "libvirt daemon", "libvirt", "QEMU", "driver", "disk",
    ]  # fmt: skip
