# SPDX-License-Identifier: Apache-2.0
"""A VM whose offering keeps VMs apart is on no host with another of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.placement.rules.rule import HostInUse, Need, need_of
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class ApartFrom(Need):
    """On no host with any of these VMs, by id."""

    codes = ("host.anti_affinity",)
    curable = codes

    vms: tuple[str, ...]

    def off_host(self, host: HostInUse) -> Iterator[str]:
        if any(vm in host.vms for vm in self.vms):
            yield from self.codes

    def message(self, code: str) -> str:
        return "a VM to stay apart from is on the host"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.apart_from_vms:
        yield ApartFrom(wanted.apart_from_vms)


def apart_from(needs: tuple[Need, ...]) -> tuple[str, ...]:
    """Ids of the VMs that are kept apart from it."""
    need = need_of(needs, ApartFrom)
    return () if need is None else need.vms


def without(needs: tuple[Need, ...]) -> tuple[Need, ...]:
    """The needs that say nothing of single VMs: hosts of one kind may have such a VM or not."""
    return tuple(need for need in needs if not isinstance(need, ApartFrom))
