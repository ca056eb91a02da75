# SPDX-License-Identifier: Apache-2.0
"""A VM that boots by UEFI, or has anything else of core/hosts/features.py, runs on hosts that have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.hosts.features import FEATURES, HostFeature
from orchestrator.core.placement.rules.rule import Fact, Need


@dataclass(frozen=True, slots=True)
class LacksFeature(Fact):
    """The host does not have it."""

    feature: HostFeature


@dataclass(frozen=True, slots=True)
class NeedsFeature(Need):
    """The VM's host must have it."""

    feature: HostFeature

    codes = tuple(feature.code for feature in FEATURES.values())

    def missing(self, facts: tuple[Fact, ...]) -> Iterator[str]:
        if LacksFeature(self.feature) in facts:
            yield FEATURES[self.feature].code

    def message(self, code: str) -> str:
        return f"the host has {FEATURES[self.feature].missing}"


def needs_of(boots_by: Firmware, *, tpm: bool) -> tuple[Need, ...]:
    wanted: dict[HostFeature, bool] = {"uefi": boots_by == "uefi", "tpm": tpm}
    return tuple(NeedsFeature(feature) for feature, is_wanted in wanted.items() if is_wanted)


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return tuple(LacksFeature(feature) for feature in FEATURES if feature not in host.features)
