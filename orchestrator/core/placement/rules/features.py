# SPDX-License-Identifier: Apache-2.0
"""A VM that has anything of core/hosts/features.py runs on hosts that can give it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.features import FEATURES, SWITCHES, HostFeature, features_of
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
    firmware = wanted.offering.firmware if wanted.made is None else wanted.made.firmware
    return map(NeedsFeature, features_of(firmware, {name: _is_on(wanted, name) for name in SWITCHES}))


def _is_on(wanted: Wanted, switch: HostFeature) -> bool:
    of_vm: bool | None = getattr(wanted.vm, switch)
    return bool(getattr(wanted.offering, switch) if of_vm is None else of_vm)


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return tuple(LacksFeature(feature) for feature in FEATURES if feature not in host.features)
