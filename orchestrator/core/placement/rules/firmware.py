# SPDX-License-Identifier: Apache-2.0
"""A VM that boots by UEFI runs on hosts that have such firmware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.placement.rules.rule import Fact, Need


@dataclass(frozen=True, slots=True)
class NoUefi(Fact):
    """The host has no UEFI firmware for VMs."""


@dataclass(frozen=True, slots=True)
class BootsByUefi(Need):
    """The VM boots by UEFI."""

    codes = ("host.no_uefi",)

    def missing(self, facts: tuple[Fact, ...]) -> Iterator[str]:
        if NoUefi() in facts:
            yield from self.codes

    def message(self, code: str) -> str:
        return "the host has no UEFI firmware for VMs"


def needs_of(boots_by: Firmware) -> tuple[Need, ...]:
    return (BootsByUefi(),) if boots_by == "uefi" else ()


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return () if host.uefi else (NoUefi(),)
