# SPDX-License-Identifier: Apache-2.0
"""Where a request would go and why, or why it fits nowhere and what would change that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.errors import Reason
from orchestrator.core.placement.engine import Engine
from orchestrator.core.placement.quota import Quota
from orchestrator.core.placement.reasons import refusal
from orchestrator.core.placement.remedies import OtherMode, Remedy, hidden, remedies
from orchestrator.core.placement.views import HostView, Placement, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The answer for one request. ``host`` is the name of the host of ``placement``."""

    request: Request
    placement: Placement | None = None
    host: str | None = None
    reasons: tuple[Reason, ...] = ()
    """One per group of hosts or GPUs, biggest group first; empty when the request fits."""
    code: str | None = None
    """Of the refusal, e.g. ``gpu.no_capacity``."""
    remedies: tuple[Remedy, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether there is a place now."""
        return self.placement is not None


def explain(
    request: Request,
    hosts: Sequence[HostView],
    *,
    quotas: Mapping[str, Quota] | None = None,
    modes: Iterable[OtherMode] = (),
    most_moves: int = 3,
) -> Explanation:
    """Explain one request over a picture of the fleet. Pure; the placement is the one ``place`` finds.

    :param modes: what GPUs could be in another mode; those that are empty are considered
    :param most_moves: most VMs that a remedy may move
    """
    engine = Engine(hosts, quotas=dict(quotas or {}))
    plan = None if engine.usage.refuses(request) else engine.plan(request)
    if plan is None:
        answer = refusal(engine, request)
        cures = remedies(engine, request, modes=modes, most_moves=most_moves)
        return Explanation(request=request, reasons=answer.reasons, code=answer.code, remedies=cures)
    host = engine.fleet.hosts[plan.host].view.name
    return Explanation(request=request, placement=engine.take(request, plan), host=host)


def for_tenant(explanation: Explanation, tenant: str) -> Explanation:
    """The explanation without names of other tenants and of their VMs."""
    return replace(explanation, remedies=tuple(hidden(explanation.remedies, tenant)))


__all__ = ["Explanation", "explain", "for_tenant"]
