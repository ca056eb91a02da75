# SPDX-License-Identifier: Apache-2.0
"""What an offering asks of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.geometry.cut import MIXES, CutKind
from orchestrator.core.labels import Labels
from orchestrator.core.offerings.offering import Offering


@dataclass(frozen=True, slots=True)
class Ask:
    """The fields of a ``Request`` that follow from the offering."""

    profile: str
    devices: int
    cut_kinds: tuple[CutKind, ...]
    host_labels: Labels
    own_cpus: bool = False
    """Whether each vCPU has a CPU of its own."""
    numa_strict: bool = False
    page_kib: int = 0
    """Size of the huge pages that its memory is made of; 0: ordinary ones."""
    uefi: bool = False
    nic: bool = False
    """Whether it has a function of a network card."""

    def floating(self, vcpus: int) -> int:
        """Of so many vCPUs those that share CPUs with other VMs."""
        return 0 if self.own_cpus else vcpus

    def pinned(self, vcpus: int) -> int:
        """Of so many vCPUs those that have theirs alone."""
        return vcpus if self.own_cpus else 0

    def ordinary_mib(self, memory_mib: int) -> int:
        """Of so much memory what is of ordinary pages."""
        return 0 if self.page_kib else memory_mib

    def huge_mib(self, memory_mib: int) -> int:
        """Of so much memory what is of huge pages."""
        return memory_mib if self.page_kib else 0


def ask_of(offering: Offering) -> Ask:
    """How the engine names what ``offering`` gives one VM. ``gpu:N`` counts as one device.

    An offering that was written down says whether its GPU may hold several sizes. A bare vGPU type goes beside other
    sizes on a GPU that mixes them already, and has none switched for it.

    :raises InvalidInput: ``profile.unsupported``: it names neither vGPU type, MIG profile nor whole GPUs
    """
    kinds: tuple[CutKind, ...] = ()
    if offering.kind == "time_sliced":
        kinds = MIXES if offering.mixed_sizes else ("time_sliced",)
        if not offering.written_down:
            kinds = ("time_sliced", "mixed")
    if offering.kind in {"mig", "mig_backed"}:
        kinds = ("mig",)
    of_host = (offering.cpu == "pinned", offering.numa == "strict", offering.page_kib, offering.firmware == "uefi")
    rest = (*of_host, offering.nic is not None)
    if offering.kind == "passthrough":
        return Ask(f"gpu:{offering.gpu_count}", 1, kinds, offering.hosts, *rest)
    profile = offering.vgpu_type or offering.mig_profile
    if profile is None:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} names no vGPU type or MIG profile",
            hint="'vgpuctl profile list' shows what there is",
        )
    return Ask(profile, offering.vgpu_count, kinds, offering.hosts, *rest)
