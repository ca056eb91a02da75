# SPDX-License-Identifier: Apache-2.0
"""What a GPU host needs, what it has of that, and what would mend the rest. Pure: facts in, a list out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.hosts.features import FEATURES, HostFeature
from orchestrator.core.units import GIB, show_size

ReadinessState = Literal["ok", "missing", "advice"]
"""``missing``: without it nothing, or no vGPU, works. ``advice``: it works, and will not always."""

ARCHITECTURE: Final = "x86_64"
"""Of every definition of a VM."""
MIN_PYTHON: Final = (3, 10)
MIN_LIBVIRT: Final = (8, 0)
"""Ubuntu 22.04's, and the floor of OpenStack's Nova."""
MIN_LIBVIRT_NVIDIA_VFIO: Final = (10, 0)
"""Before it, libvirt refuses a function that is bound to another driver than vfio-pci."""
MIN_QEMU: Final = (6, 2)
MIN_FREE_BYTES: Final = 20 * GIB
"""An image and a disk or two."""
_DRIVERS: Final = frozenset({"nvidia", "nouveau"})
"""That a GPU has where nobody keeps it for something else; of nouveau there is a requirement of its own."""
_KEPT_BY: Final = re.compile(r"(?:vfio[-_]pci|pci[-_]stub)\.ids=\S*10de\S*", re.ASCII | re.IGNORECASE)
"""As the kernel takes it, with either hyphen (Documentation/admin-guide/kernel-parameters.rst)."""
_PROVISION: Final = "'vgpuctl host provision NAME' does it once the host is added"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostGpuFact:
    """A GPU as the kernel shows it."""

    address: str
    driver: str | None
    iommu_group: bool
    takes_types: bool
    """Its virtual functions take vGPU types by NVIDIA's own VFIO driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOvnFact:
    """How a host is in a network over all hosts."""

    version: str | None
    """Of ovn-controller; None: none is installed."""
    remote: str | None
    """Whose southbound database it is told to ask; None: nobody has told it."""
    connected: bool
    """It does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostReadinessFacts:
    """What was read of a host. None: it is not there."""

    os: str
    os_id: str
    kernel: str
    architecture: str
    """As ``uname -m`` tells it."""
    command_line: str
    amd: bool
    iommu_groups: int
    modules: tuple[str, ...]
    kvm: bool
    systemd: bool
    libvirt_listens: bool
    libvirt: str | None
    qemu: str | None
    python: tuple[int, ...]
    """Empty: it does not run."""
    python_libvirt: bool
    driver: str | None
    headers: bool
    secure_boot: bool | None
    confinement: str | None
    """AppArmor or SELinux, where the kernel runs one."""
    features: tuple[HostFeature, ...]
    """What its software can give VMs."""
    gpus: tuple[HostGpuFact, ...]
    storage_free_bytes: int
    nvswitches: bool
    switches_lack: tuple[str, ...]
    """What they need beside the fabric manager and is not there: ``nvlsm``, ``ib_umad``; of HGX B200 and later."""
    fabric_manager: str | None
    dcgm: str | None
    ovn: HostOvnFact
    huge_pages_2m: int
    huge_pages_1g: int
    large_pages_mounted: bool
    """Those of 1 GiB: libvirt gives QEMU none of them otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One thing that a host needs."""

    name: str
    """What it is called."""
    state: ReadinessState
    """advice: it works without, and will not always."""
    found: str
    """What is there."""
    remedy: str | None
    """None when there is nothing to do."""


def requirements(facts: HostReadinessFacts, *, in_ovn: bool = False) -> tuple[Requirement, ...]:
    """All of them, in the order in which to mend them. ``in_ovn``: its label asks for it in OVN."""
    return tuple(_all(facts, in_ovn=in_ovn))


def _all(facts: HostReadinessFacts, *, in_ovn: bool) -> Iterator[Requirement]:
    yield _of("systemd", facts.systemd, "runs the host", "does not run the host", "use a host that systemd runs")
    yield _of(
        "architecture", facts.architecture == ARCHITECTURE, facts.architecture, facts.architecture or "unknown",
        f"use a host with processors of {ARCHITECTURE}: no other runs VMs",
    )  # fmt: skip
    yield _python(facts)
    yield _of(
        "KVM", facts.kvm, "/dev/kvm", "no /dev/kvm",
        "switch virtualisation on in the firmware and load kvm_intel or kvm_amd", state="advice",
    )  # fmt: skip
    yield _iommu(facts)
    yield _of(
        "vfio", "vfio_pci" in facts.modules, "vfio_pci is loaded", "vfio_pci is not loaded",
        f"write vfio-pci to /etc/modules-load.d/vfio.conf and run modprobe vfio-pci; {_PROVISION}",
    )  # fmt: skip
    yield _of(
        "nouveau", "nouveau" not in facts.modules, "not loaded", "loaded: it holds the GPUs",
        f"blacklist nouveau in /etc/modprobe.d, rebuild the initramfs, reboot; {_PROVISION}",
    )  # fmt: skip
    yield from _libvirt(facts)
    yield _floor("QEMU", facts.qemu, MIN_QEMU)
    yield _of(
        "confinement", facts.confinement is not None, f"{facts.confinement} is on", "no AppArmor and no SELinux",
        "switch one on and reboot, or allow it once the host is added: vgpuctl host set NAME --allow-unconfined",
        state="advice",
    )  # fmt: skip
    for feature, text in FEATURES.items():
        remedy = f"install {text.package}: {text.asked_by} need it"
        yield _of(text.title, feature in facts.features, text.given_by, text.missing, remedy, state="advice")
    yield _gpus(facts)
    yield from _driver(facts)
    yield from _beside_driver(facts, in_ovn=in_ovn)
    enough = facts.storage_free_bytes >= MIN_FREE_BYTES
    free = f"{show_size(facts.storage_free_bytes // GIB * GIB)} free" if facts.storage_free_bytes >= GIB else "full"
    yield _of("disk", enough, free, free, f"make {show_size(MIN_FREE_BYTES)} free where the agent's storage lies")


def _of(
    name: str, good: bool, present: str, wanting: str, remedy: str, *, state: ReadinessState = "missing"
) -> Requirement:
    if good:
        return Requirement(name=name, state="ok", found=present, remedy=None)
    return Requirement(name=name, state=state, found=wanting, remedy=remedy)


def _python(facts: HostReadinessFacts) -> Requirement:
    version = ".".join(map(str, facts.python)) or "none that runs"
    binding = "with libvirt" if facts.python_libvirt else "its libvirt module is installed when the host is added"
    return _of(
        "Python", facts.python >= MIN_PYTHON, f"{version}, {binding}", version,
        "install Python 3.10 or newer (RHEL 9: python3.12)",
    )  # fmt: skip


def _iommu(facts: HostReadinessFacts) -> Requirement:
    groups = f"{facts.iommu_groups} groups"
    argument = "iommu=pt" if facts.amd else "intel_iommu=on iommu=pt"
    wanted = [word for word in argument.split() if word not in facts.command_line.split()]
    remedy = (
        f"add {' '.join(wanted)} to the kernel's arguments (GRUB_CMDLINE_LINUX), then update-grub and reboot; "
        f"{_PROVISION}"
        if wanted
        else "the kernel's arguments are right: switch VT-d or AMD-Vi on in the firmware, or reboot if that was done"
    )
    return _of("IOMMU", facts.iommu_groups > 0, groups, "no groups", remedy)


def _libvirt(facts: HostReadinessFacts) -> Iterator[Requirement]:
    yield _of(
        "libvirt daemon", facts.libvirt_listens, "listens", "none listens below /run/libvirt",
        "install libvirt-daemon-system (RHEL: libvirt-daemon-kvm) and start it",
    )  # fmt: skip
    vendor = any(gpu.takes_types for gpu in facts.gpus)
    yield _floor("libvirt", facts.libvirt, MIN_LIBVIRT_NVIDIA_VFIO if vendor else MIN_LIBVIRT)


def _floor(name: str, version: str | None, floor: tuple[int, int]) -> Requirement:
    wanted = ".".join(map(str, floor))
    known = () if version is None else tuple(int(part) for part in version.split(".")[:2])
    return _of(
        name, known >= floor, version or "", version or "not installed",
        f"install {name} {wanted} or newer: a newer release of the system has it",
    )  # fmt: skip


def _gpus(facts: HostReadinessFacts) -> Requirement:
    named = ", ".join(gpu.address for gpu in facts.gpus)
    taken: dict[str, list[str]] = {}
    for gpu in facts.gpus:
        if gpu.driver is not None and gpu.driver not in _DRIVERS:
            taken.setdefault(gpu.driver, []).append(gpu.address)
    if not taken:
        return _of(
            "GPUs", bool(facts.gpus), named, "no NVIDIA GPU is on the PCI bus",
            "look at the firmware's settings (above 4G decoding, SR-IOV) and at lspci -d 10de:",
        )  # fmt: skip
    drivers, has = " and ".join(taken), "; ".join(f"{name} has {', '.join(those)}" for name, those in taken.items())
    arguments = [match[0] for match in map(_KEPT_BY.fullmatch, facts.command_line.split()) if match is not None]
    if arguments:
        has, remedy = f"{has} since boot", f"take {' and '.join(arguments)} out of the kernel's arguments and reboot"
    else:
        unless = "unless VMs have them: " if "vfio-pci" in taken else ""
        remedy = f"{unless}take what binds them to {drivers} out of /etc/modprobe.d, the initramfs and driverctl, and "
        remedy += "reboot"
    return _of("GPUs", False, named, has, f"{remedy}: a GPU goes to vfio-pci when its VM starts", state="advice")


def _driver(facts: HostReadinessFacts) -> Iterator[Requirement]:
    if facts.driver is not None:
        yield Requirement(name="driver", state="ok", found=facts.driver, remedy=None)
        return
    obstacles = [] if facts.headers else [f"install the headers of kernel {facts.kernel} first"]
    if facts.secure_boot:
        obstacles.append("Secure Boot is on: enrol the key that signs its modules, or switch it off")
    remedy = "; ".join([*obstacles, f"install NVIDIA's vGPU host driver; {_PROVISION}"])
    yield Requirement(name="driver", state="missing", found="no nvidia module is loaded", remedy=remedy)


def _beside_driver(facts: HostReadinessFacts, *, in_ovn: bool) -> Iterator[Requirement]:
    if facts.nvswitches:
        yield _of(
            "fabric manager", facts.fabric_manager is not None and facts.fabric_manager == facts.driver,
            facts.fabric_manager or "", facts.fabric_manager or "not installed, and the host has NVSwitches",
            f"lock fabric_manager in the driver's version and add its bundle; {_PROVISION}",
        )  # fmt: skip
    if facts.switches_lack:
        yield _of(
            "subnet manager", False, "", f"no {' and no '.join(facts.switches_lack)}: no GPU joins its fabric",
            "install NVIDIA's package nvlsm, load the kernel module ib_umad at each boot "
            "(docs/howto/fabric-partitions.md)", state="advice",
        )  # fmt: skip
    yield Requirement(name="DCGM", state="ok", found=facts.dcgm or "not installed, nothing needs it", remedy=None)
    yield _ovn(facts.ovn, wanted=in_ovn)
    counts = [
        f"{count} of {size}" for count, size in ((facts.huge_pages_2m, "2M"), (facts.huge_pages_1g, "1G")) if count
    ]
    yield _of(
        "huge pages", not facts.huge_pages_1g or facts.large_pages_mounted, ", ".join(counts) or "none, few need them",
        f"{facts.huge_pages_1g} of 1G that no VM gets: nothing is mounted for them",
        "playbooks/prepare-host.yml mounts them (docs/howto/prepare-hosts.md)", state="advice",
    )  # fmt: skip


def _ovn(ovn: HostOvnFact, *, wanted: bool) -> Requirement:
    if ovn.version is None and wanted:
        return _of(
            "OVN", False, "", "not installed, and its label ovn asks for it", "run 'vgpuctl host provision NAME'",
            state="advice",
        )  # fmt: skip
    if ovn.version is None:
        return Requirement(name="OVN", state="ok", found="not installed, NAT and bridges need none", remedy=None)
    if ovn.remote is None:
        return _of(
            "OVN", False, "", f"{ovn.version}, and it is in none",
            "'vgpuctl host set NAME --label ovn=member' and 'vgpuctl host provision NAME' bring it into the site's",
            state="advice",
        )  # fmt: skip
    return _of(
        "OVN", ovn.connected, f"{ovn.version}, connected to {ovn.remote}", f"{ovn.version}, no answer of {ovn.remote}",
        "look at ovn-controller there (systemctl status ovn-controller) and run 'vgpuctl network driver check'",
        state="advice",
    )  # fmt: skip
