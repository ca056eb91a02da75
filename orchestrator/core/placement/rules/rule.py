# SPDX-License-Identifier: Apache-2.0
"""What a constraint consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from orchestrator.core.geometry.cut import Taken
from orchestrator.core.geometry.geometry import Geometry


class Resource(NamedTuple):
    """Something of a host that is counted, and that VMs spend."""

    kind: str
    """Each is one rule's."""
    node: int = -1
    """The NUMA node that it is of; -1: it is counted otherwise."""
    of: Hashable = None
    """Which one, or which sort: the rule says."""


Amounts = tuple[tuple[Resource, int], ...]
"""How much of what."""


def with_more(free: Mapping[Resource, int], more: Iterable[Amounts]) -> dict[Resource, int]:
    """``free`` once so much more is given back. What is not counted there is left out."""
    total = dict(free)
    for resource, amount in (pair for amounts in more for pair in amounts):
        if resource in total:
            total[resource] += amount
    return total


class Fact:
    """Something that a host or GPU has or lacks. Hosts are grouped by their facts, so it is frozen and hashable."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 128


class Need(ABC):
    """What a VM needs of its host and GPUs; frozen and hashable."""

    __slots__ = ()
    codes: ClassVar[tuple[str, ...]]
    """Of its refusals."""
    lasting: ClassVar[tuple[str, ...]] = ()
    """Those of them that stay whatever goes from a host."""
    curable: ClassVar[tuple[str, ...]] = ()
    """Those of them, of a host, that the going of other VMs may cure."""
    yielded: ClassVar[tuple[str, ...]] = ()
    """Those that it cures too if the others are stopped, and keep their disks there."""
    after_shortage: ClassVar[bool] = False
    """Whether lack of vCPUs or memory, and a GPU that may not be used, are told before it."""
    keeps_off: ClassVar[bool] = False
    """Whether others may be kept off by it, so that it is known of VMs that have a place."""
    near_gpus: ClassVar[bool] = False
    """Whether it spends what several GPUs of a host have together."""

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

    def missing(self, host: KnownHost) -> Iterator[str]:
        """Codes of why the host can never take the VM."""
        return iter(())

    def off_host(self, host: HostInUse) -> Iterator[str]:
        """Codes of why the host does not take it now."""
        return iter(())

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        """Codes of why the GPU does not take it now."""
        return iter(())

    def off_set(self, gpus: Sequence[GpuInUse]) -> Iterator[str]:
        """Codes of why these GPUs of a host are not given out together, though each of them would be."""
        return iter(())

    def side(self, gpu: GpuInUse) -> Hashable:
        """All devices of the VM are on GPUs for which it is the same."""
        return None

    def takes(self, gpus: Sequence[GpuInUse]) -> Amounts:
        """What it spends on these GPUs of a host; nothing where the host turns out to have too little."""
        return ()

    def short(
        self, host: HostInUse, gpus: Sequence[GpuInUse] | None, free: Mapping[Resource, int]
    ) -> tuple[int, ...] | None:
        """How much is too little on these GPUs of the host, were so much free. ``gpus`` None: wherever on it.

        None: it may not be there, however much is free."""
        return ()

    def words_of_place(self, gpus: Sequence[GpuInUse], taken: Amounts) -> str:
        """For people, how good a place on these GPUs is for it."""
        return ""

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


class KnownHost(Protocol):
    """What a need sees of a host, whatever is on it (``views.HostView``)."""

    @property
    def host_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def facts(self) -> tuple[Fact, ...]: ...


class GpuInUse(Protocol):
    """What a need sees of a GPU (``fleet.Gpu``)."""

    @property
    def gpu_id(self) -> str: ...
    @property
    def host(self) -> HostInUse: ...
    @property
    def numa(self) -> int | None: ...
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
    def view(self) -> KnownHost: ...
    @property
    def vms(self) -> Collection[str]: ...
    @property
    def free(self) -> Mapping[Resource, int]: ...
    @property
    def gpus(self) -> Sequence[GpuInUse]: ...


FactT = TypeVar("FactT", bound=Fact)
NeedT = TypeVar("NeedT", bound=Need)


def find(facts: tuple[Fact, ...], kind: type[FactT]) -> FactT | None:
    """The fact of that kind; None: nothing is known of it."""
    for fact in facts:
        if type(fact) is kind:
            return fact
    return None


def need_of(needs: tuple[Need, ...], kind: type[NeedT]) -> NeedT | None:
    """The need of that kind; None: it has none."""
    for need in needs:
        if type(need) is kind:  # asked of every VM on a host, and isinstance takes four times as long
            return need
    return None
