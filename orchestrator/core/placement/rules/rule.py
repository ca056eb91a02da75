# SPDX-License-Identifier: Apache-2.0
"""What a constraint consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import ClassVar, Protocol, TypeVar

from orchestrator.core.geometry.cut import Taken
from orchestrator.core.geometry.geometry import Geometry


class Fact:
    """Something that a host or GPU has or lacks. Hosts are grouped by their facts, so it is frozen and hashable."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 128


class Need(ABC):
    """What a VM needs of its host and GPUs; frozen and hashable. A VM that has a place keeps its needs: they may keep
    others off."""

    __slots__ = ()
    codes: ClassVar[tuple[str, ...]]
    """Of its refusals."""
    after_shortage: ClassVar[bool] = False
    """Whether lack of vCPUs, memory or disk is told before it."""

    @property
    def filters(self) -> bool:
        """Whether it may rule out a host or a GPU that has room."""
        return True

    @property
    def filters_others(self) -> bool:
        """Whether it may keep VMs off its GPU that have no such need."""
        return False

    @property
    def judges_empty_gpus(self) -> bool:
        """Whether it may rule out a GPU that nothing is on."""
        return False

    def missing(self, facts: tuple[Fact, ...]) -> Iterator[str]:
        """Codes of why a host with these facts can never take the VM."""
        return iter(())

    def off_host(self, host: HostInUse) -> Iterator[str]:
        """Codes of why the host does not take it now, for what is on it."""
        return iter(())

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        """Codes of why the GPU does not take it now."""
        return iter(())

    def in_the_way(self, held: Iterable[HeldPart], geometry: Geometry, cut: str | None) -> Iterator[str]:
        """Ids of the VMs on a GPU under that cut that would have to leave, however much room it has."""
        return iter(())

    def as_neighbour(self, needs: tuple[Need, ...]) -> Hashable:
        """Equal for neighbours between which a VM with ``needs`` cannot tell."""
        return None

    @abstractmethod
    def message(self, code: str) -> str:
        """One of its codes for people."""


class HeldPart(Protocol):
    """What a VM has of a GPU (``views.Occupied``)."""

    @property
    def vm_id(self) -> str: ...
    @property
    def profile(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...


class GpuInUse(Protocol):
    """What a need sees of a GPU (``fleet.Gpu``)."""

    @property
    def geometry(self) -> Geometry: ...
    @property
    def facts(self) -> tuple[Fact, ...]: ...
    @property
    def cut_name(self) -> str | None: ...
    @property
    def held(self) -> Sequence[tuple[Taken, HeldPart]]: ...


class HostInUse(Protocol):
    """What a need sees of a host (``fleet.FleetHost``)."""

    @property
    def vms(self) -> Collection[str]: ...
    @property
    def gpus(self) -> Sequence[GpuInUse]: ...


FactT = TypeVar("FactT", bound=Fact)
NeedT = TypeVar("NeedT", bound=Need)


def find(facts: tuple[Fact, ...], kind: type[FactT]) -> FactT | None:
    """The fact of that kind; None: nothing is known of it."""
    for fact in facts:
        if isinstance(fact, kind):
            return fact
    return None


def need_of(needs: tuple[Need, ...], kind: type[NeedT]) -> NeedT | None:
    """The need of that kind; None: it has none."""
    for need in needs:
        if isinstance(need, kind):
            return need
    return None
