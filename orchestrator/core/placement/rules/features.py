# SPDX-License-Identifier: Apache-2.0
"""A VM that boots by UEFI, or has anything else of core/hosts/features.py, runs on hosts that have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.features import FEATURES, HostFeature
from orchestrator.core.placement.rules.rule import Fact, KnownHost, Need
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class LacksFeature(Fact):
    """The host does not have it."""

    feature: HostFeature


@dataclass(frozen=True, slots=True)
class NeedsFeature(Need):
    """The VM's host must have it."""

    feature: HostFeature

    codes = tuple(feature.code for feature in FEATURES.values())
    lasting = codes

    def missing(self, host: KnownHost) -> Iterator[str]:
        if LacksFeature(self.feature) in host.facts:
            yield FEATURES[self.feature].code

    def message(self, code: str) -> str:
        return f"the host has {FEATURES[self.feature].missing}"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    vm, offering = wanted.vm, wanted.offering
    firmware = offering.firmware if wanted.made is None else wanted.made.firmware
    wants: dict[HostFeature, bool] = {
        "uefi": firmware == "uefi",
        "tpm": offering.tpm if vm.tpm is None else vm.tpm,
    }
    return (NeedsFeature(feature) for feature, is_asked in wants.items() if is_asked)


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return tuple(LacksFeature(feature) for feature in FEATURES if feature not in host.features)
