# SPDX-License-Identifier: Apache-2.0
"""A VM runs on hosts with the labels that its offering names, and on none that is kept for another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.labels import KEPT_FOR, Labels, kept_from, show_labels
from orchestrator.core.placement.rules.rule import Fact, KnownHost, Need, find
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class HasLabels(Fact):
    """Labels of the host that some offering asks for, and for whom it is kept."""

    labels: Labels


@dataclass(frozen=True, slots=True)
class NeedsLabels(Need):
    """All of these labels."""

    codes = ("host.labels",)
    lasting = codes

    labels: Labels

    def missing(self, host: KnownHost) -> Iterator[str]:
        if not set(self.labels).issubset(_labels(host.facts)):
            yield from self.codes

    def message(self, code: str) -> str:
        return f"the host is not labelled {show_labels(dict(self.labels))}"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.offering.hosts:
        yield NeedsLabels(wanted.offering.hosts)


def facts_of(host_labels: Labels) -> tuple[Fact, ...]:
    return (HasLabels(host_labels),) if host_labels else ()


def is_kept(facts: tuple[Fact, ...]) -> bool:
    """Whether the host is kept for a tenant."""
    return KEPT_FOR in dict(_labels(facts))


def kept_for_another(facts: tuple[Fact, ...], tenant: str) -> str | None:
    """The tenant that the host is kept for; None: this one may be there."""
    return kept_from(_labels(facts), tenant)


def _labels(facts: tuple[Fact, ...]) -> Labels:
    has = find(facts, HasLabels)
    return () if has is None else has.labels
