# SPDX-License-Identifier: Apache-2.0
"""A VM that is itself on a provider network runs on hosts that this leaves by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.core.placement.rules.rule import KnownHost, Need
from orchestrator.core.placement.rules.wanted import Wanted

_NO_MAPPING: Final = "host.no_mapping"


@dataclass(frozen=True, slots=True)
class NeedsMapping(Need):
    """A bridge for the physical network, as OVN last told of its hosts."""

    codes = (_NO_MAPPING,)
    lasting = codes

    hosts: frozenset[str]

    def missing(self, host: KnownHost) -> Iterator[str]:
        if host.name not in self.hosts:
            yield _NO_MAPPING

    def message(self, code: str) -> str:
        return "the host has no bridge for the VM's provider network: vgpuctl_host_ovn_mappings names none there"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.leading_out is not None:
        yield NeedsMapping(wanted.leading_out)
