# SPDX-License-Identifier: Apache-2.0
"""What the machine says of itself: identity, operating system, memory, NUMA nodes, and what its software can give VMs
(core/hosts/features.py), which comes and goes while libvirt runs. Nothing of it is ever changed.

NUMA: Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/mm/hugetlbpage.rst.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpus import Cores, HugePages, NumaNode, parse_cpus
from orchestrator.core.hosts.features import HostFeature
from orchestrator.core.hosts.snapshot import HostCpu


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    machine_id: str
    boot_id: str
    hostname: str
    kernel: str
    os_name: str
    vcpus: int
    memory_mib: int
    iommu: bool


def boot_id(paths: Paths) -> str:
    """Differs after every boot."""
    return reading.text(paths.proc / "sys/kernel/random/boot_id") or ""


def driver_epoch(paths: Paths) -> str:
    """Differs after every boot, and after every swap of the driver that our role made: both leave nothing of what the
    driver held. Empty: cannot tell."""
    swapped = reading.text(paths.root / "run/vgpuctl-driver")
    booted = boot_id(paths)
    return f"{booted} {swapped}" if booted and swapped else booted


def _os_name(paths: Paths) -> str:
    for line in (reading.text(paths.etc / "os-release") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip('"')
    return "unknown"


def _memory_mib(paths: Paths) -> int:
    for line in (reading.text(paths.proc / "meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def read(paths: Paths) -> MachineFacts:
    return MachineFacts(
        machine_id=reading.text(paths.etc / "machine-id") or "",
        boot_id=boot_id(paths),
        hostname=reading.text(paths.proc / "sys/kernel/hostname") or "",
        kernel=reading.text(paths.proc / "sys/kernel/osrelease") or "",
        os_name=_os_name(paths),
        vcpus=os.cpu_count() or 1,
        memory_mib=_memory_mib(paths),
        iommu=bool(reading.names(paths.iommu_groups)),
    )


_CPU: Final = {"model name": "model", "flags": "flags", "Features": "flags"}
"""Fields of /proc/cpuinfo; arm64 calls the last one so (Documentation/arch/arm64/cpu-feature-registers.rst)."""


def read_cpu(paths: Paths) -> HostCpu | None:
    """Of its first CPU; None where the kernel does not tell."""
    fields: dict[str, str] = {}
    for line in (reading.text(paths.proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        name = _CPU.get(key.strip())
        if name is not None:
            fields.setdefault(name, value.strip())
    if "flags" not in fields:
        return None
    features = sha256(" ".join(sorted(set(fields["flags"].split()))).encode()).hexdigest()[:_DIGITS]
    page_kib = os.sysconf("SC_PAGE_SIZE") // 1024
    return HostCpu(model=fields.get("model", "unknown")[:_MODEL], features=features, page_kib=page_kib)


_DIGITS: Final = 16
_MODEL: Final = 100
_DIRECTORIES: Final = ("usr/share/qemu/firmware", "etc/qemu/firmware")
"""A description of a later one replaces one of the same name; an empty one takes it away."""
_PROGRAMS: Final = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
_SWTPM: Final = ("swtpm", "swtpm_setup", "swtpm_ioctl")
_NOT_OURS: Final = frozenset({"secure-boot", "requires-smm"})


def read_features(paths: Paths) -> tuple[HostFeature, ...]:
    return tuple(feature for feature, has_feature in _FINDERS.items() if has_feature(paths))


def _has_uefi(paths: Paths) -> bool:
    """UEFI firmware without Secure Boot, for x86-64 and the machine type of our VMs, with variables of each VM's own:
    what QEMU's firmware descriptions say, which libvirt chooses from (QEMU docs/interop/firmware.json)."""
    described: dict[str, Path] = {}
    for directory in _DIRECTORIES:
        below = paths.root / directory
        described |= {name: below / name for name in reading.names(below) if name.endswith(".json")}
    return any(_fits(paths, file) for file in described.values())


def _fits(paths: Paths, file: Path) -> bool:
    try:
        description = json.loads(reading.text(file) or "null")
        if "uefi" not in description["interface-types"] or _NOT_OURS.intersection(description.get("features", ())):
            return False
        if not any(_is_target(target) for target in description["targets"]):
            return False
        files = tuple(_files(description["mapping"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return all((paths.root / name.removeprefix("/")).is_file() for name in files)


def _is_target(target: Any) -> bool:
    return target["architecture"] == "x86_64" and any(
        str(machine).startswith("pc-q35") for machine in target["machines"]
    )


def _files(mapping: Any) -> Iterator[str]:
    """Of flash with code and variables apart; firmware in one piece would have no variables that are a VM's."""
    if mapping["device"] != "flash" or mapping.get("mode", "split") != "split":
        raise ValueError(mapping["device"])
    yield str(mapping["executable"]["filename"])
    yield str(mapping["nvram-template"]["filename"])


def _has_tpm(paths: Paths) -> bool:
    """libvirt starts a TPM where it finds these three on its path (virTPMEmulatorInit of src/util/virtpm.c)."""
    return all(any(os.access(paths.root / place / name, os.X_OK) for place in _PROGRAMS) for name in _SWTPM)


_FINDERS: Final[dict[HostFeature, Callable[[Paths], bool]]] = {"uefi": _has_uefi, "tpm": _has_tpm}


_NODE: Final = re.compile(r"node(\d+)", re.ASCII)
_PAGES: Final = re.compile(r"hugepages-(\d+)kB", re.ASCII)
_PAGE: Final = re.compile(r"pagesize=(\d+)([KMG])", re.ASCII)
_IN_KIB: Final = {"K": 1, "M": 1024, "G": 1024 * 1024}
_TOTAL: Final = re.compile(r"MemTotal:\s+(\d+) kB", re.ASCII)


def read_numa_nodes(paths: Paths) -> tuple[NumaNode, ...]:
    """By number; none where the kernel knows no nodes."""
    system = paths.root / "sys/devices/system"
    matches = (_NODE.fullmatch(name) for name in reading.names(system / "node"))
    numbers = sorted(int(match[1]) for match in matches if match is not None)
    mounted = frozenset(_mounted(paths.root))
    return tuple(_node(system, number, mounted) for number in numbers)


def _mounted(root: Path) -> Iterator[int]:
    """Sizes of huge pages, in KiB, that a hugetlbfs is mounted for: libvirt gives QEMU those alone."""
    for line in (reading.text(root / "proc/mounts") or "").splitlines():
        words = line.split()
        size = _PAGE.search(words[3]) if len(words) > 3 and words[2] == "hugetlbfs" else None
        if size is not None:
            yield int(size[1]) * _IN_KIB[size[2]]


def _node(system: Path, number: int, mounted: frozenset[int]) -> NumaNode:
    directory = system / f"node/node{number}"
    memory = _TOTAL.search(reading.text(directory / "meminfo") or "")
    return NumaNode(
        id=number,
        cores=_cores(system, _cpus(directory / "cpulist")),
        memory_mib=None if memory is None else int(memory[1]) // 1024,
        hugepages=tuple(_huge_pages(directory / "hugepages", mounted)),
    )


def _cores(system: Path, online: tuple[int, ...]) -> Cores:
    """A core is asked about by its first CPU. One whose siblings are not told is a core of its own."""
    left, cores = set(online), []
    for cpu in online:
        if cpu in left:
            siblings = _cpus(system / f"cpu/cpu{cpu}/topology/thread_siblings_list")
            core = (cpu, *(sibling for sibling in siblings if sibling != cpu and sibling in left))
            left.difference_update(core)
            cores.append(tuple(sorted(core)))
    return tuple(cores)


def _cpus(file: Path) -> tuple[int, ...]:
    try:
        return parse_cpus(reading.text(file) or "")
    except InvalidInput:
        return ()


def _huge_pages(directory: Path, mounted: frozenset[int]) -> Iterator[HugePages]:
    sizes = (_PAGES.fullmatch(name) for name in reading.names(directory))
    for size in sorted(int(match[1]) for match in sizes if match is not None):
        pages = directory / f"hugepages-{size}kB"
        total, free = reading.number(pages / "nr_hugepages"), reading.number(pages / "free_hugepages")
        if total:
            yield HugePages(size_kib=size, total=total, free=free or 0, mounted=size in mounted)
