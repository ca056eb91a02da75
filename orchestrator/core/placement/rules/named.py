# SPDX-License-Identifier: Apache-2.0
"""A VM goes to the host, or to the GPU, that somebody names for it, and one that moves not to all hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.placement.rules.rule import GpuInUse, KnownHost, Need, need_of
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class OnHost(Need):
    """The only host that will do, by its id or name."""

    codes = ("host.other",)
    lasting = codes

    host: str
    volume: str | None = None
    """Name of the data volume that lies there, where nobody has named the host."""

    @property
    def place(self) -> str:
        """Where that is, for people: what a volume ties a VM to is not its tenant's to know."""
        return f"host {self.host}" if self.volume is None else f"the host of volume {self.volume}"

    def missing(self, host: KnownHost) -> Iterator[str]:
        if self.host not in {host.host_id, host.name}:
            yield "host.other"

    def message(self, code: str) -> str:
        return "another host was asked for" if self.volume is None else f"volume {self.volume} is on another host"


@dataclass(frozen=True, slots=True)
class OffHosts(Need):
    """On none of these, by name."""

    codes = ("move.not_there",)
    lasting = codes

    hosts: frozenset[str]

    def missing(self, host: KnownHost) -> Iterator[str]:
        if host.name in self.hosts:
            yield "move.not_there"

    def message(self, code: str) -> str:
        return "it is there already, or may not move there"


@dataclass(frozen=True, slots=True)
class BesideSnapshot(Need):
    """On the host of the snapshot that its disk is a copy of."""

    codes = ("host.no_snapshot",)
    lasting = codes

    host: str

    def missing(self, host: KnownHost) -> Iterator[str]:
        if self.host not in {host.host_id, host.name}:
            yield "host.no_snapshot"

    def message(self, code: str) -> str:
        return "the snapshot that its disk is to be a copy of is on another host"


@dataclass(frozen=True, slots=True)
class OnGpu(Need):
    """The only GPU that will do, as its host calls it."""

    codes = ("gpu.other",)

    gpu: str

    @property
    def judges_empty_gpus(self) -> bool:
        return True

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if gpu.gpu_id != self.gpu:
            yield "gpu.other"

    def message(self, code: str) -> str:
        return "another GPU was asked for"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.vm.host is not None:
        yield OnHost(wanted.vm.host, wanted.tied_by)
    if wanted.beside_snapshot is not None:
        yield BesideSnapshot(wanted.beside_snapshot)
    if wanted.off_hosts:
        yield OffHosts(wanted.off_hosts)
    if wanted.vm.gpu is not None:
        yield OnGpu(wanted.vm.gpu)


def host_of(needs: tuple[Need, ...]) -> str | None:
    """The only one that need be looked at; None: any will do."""
    need = need_of(needs, OnHost) or need_of(needs, BesideSnapshot)
    return None if need is None else need.host


def gpu_of(needs: tuple[Need, ...]) -> str | None:
    """None: any will do."""
    need = need_of(needs, OnGpu)
    return None if need is None else need.gpu


def on_host(needs: tuple[Need, ...], host: str) -> tuple[Need, ...]:
    """The same on that host and no other."""
    return (OnHost(host), *(need for need in needs if not isinstance(need, OnHost)))
