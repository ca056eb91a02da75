# SPDX-License-Identifier: Apache-2.0
"""Where a request would go and why, or why it fits nowhere and what would change that."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.advice.gpu_map import GpuRow, gpu_map
from orchestrator.core.advice.outlook import NEVER_FITS
from orchestrator.core.advice.remedies import Remedy, remedies
from orchestrator.core.errors import Reason
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.reasons import refusal
from orchestrator.core.placement.views import HostView, Placement, Request

_ABOUT_ROOM = frozenset({"gpu.no_capacity", "gpu.fragmented", "gpu.other_size_in_use", "gpu.other_cut_in_use"})
_MAX_GPUS = 4
NO_PLACE = Reason(code="gpu.no_capacity", message="there is no place for it now")
"""All that a tenant learns of what others hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The answer for one request. ``host`` is the name of the host of ``placement``."""

    request: Request
    placement: Placement | None = None
    host: str | None = None
    reasons: tuple[Reason, ...] = ()
    """One per group of hosts or GPUs, biggest group first, after why it never fits; empty when the request fits."""
    told: Reason | None = None
    """What a tenant may know beside that there is no place now (core/advice/outlook.py)."""
    code: str | None = None
    """Of the refusal, e.g. ``gpu.no_capacity``."""
    remedies: tuple[Remedy, ...] = ()
    gpus: tuple[GpuRow, ...] = ()
    """What lies on the GPUs that are too full or cut in another way: a few, no two alike."""

    @property
    def fits(self) -> bool:
        """Whether there is a place now."""
        return self.placement is not None


def explain(request: Request, hosts: Sequence[HostView]) -> Explanation:
    """Explain one request over a picture of the fleet. Pure; the placement is the one ``place`` finds."""
    return explain_in(PlacementEngine(hosts), request, hosts)


def explain_in(engine: PlacementEngine, request: Request, hosts: Sequence[HostView]) -> Explanation:
    """Like :func:`explain`, in an engine that has those hosts; it is left as it was."""
    plan = engine.plan(request)
    if plan is None:
        answer = refusal(engine, request)
        cures = remedies(engine, request)
        full = _full_gpus(hosts, answer.reasons)
        return Explanation(request=request, reasons=answer.reasons, code=answer.code, remedies=cures, gpus=full)
    host = engine.fleet.hosts[plan.host].view.name
    placement = engine.take(request, plan)
    engine.release(request.vm_id)
    return Explanation(request=request, placement=placement, host=host)


def _full_gpus(hosts: Sequence[HostView], reasons: Sequence[Reason]) -> tuple[GpuRow, ...]:
    subjects = {name for reason in reasons if reason.code in _ABOUT_ROOM for name in reason.subjects}
    rows: dict[Hashable, GpuRow] = {}
    for host in hosts:
        for gpu in host.gpus:
            if f"{host.name}/{gpu.gpu_id}" in subjects and len(rows) < _MAX_GPUS:
                held = tuple((item.profile, item.start) for item in gpu.occupied)
                alike = (gpu.geometry.key, gpu.cut, held)
                if alike not in rows:
                    rows[alike] = gpu_map([replace(host, gpus=(gpu,))])[0]
    return tuple(rows.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantExplanation:
    """An explanation as a tenant gets it: nothing in it tells who or what is in the way, or where."""

    request: Request
    fits: bool
    reasons: tuple[Reason, ...] = ()
    code: str | None = None
    preempts: tuple[str, ...] = ()
    """``tenant/name`` of VMs that would be stopped for it, if it asked for that; others' are for nobody to read."""


def led_by(explanation: Explanation, first: Reason | None, exact: Request) -> Explanation:
    """With what is to be told first of one that fits nowhere. ``exact``: what was asked before sizes were rounded up;
    what can never be is said of that."""
    if first is None or first.code != NEVER_FITS:
        return replace(explanation, told=first)
    return replace(explanation, request=exact, told=first, reasons=(first, *explanation.reasons), code=first.code)


def for_tenant(explanation: Explanation, preempts: tuple[str, ...] = ()) -> TenantExplanation:
    """A tenant's own quota is told with its numbers, its own VMs by their names, and what can never be; everything else
    is "no place now"."""
    request = explanation.request
    if explanation.fits:
        return TenantExplanation(request=request, fits=True)
    if (explanation.code or "").startswith("quota."):
        return TenantExplanation(request=request, fits=False, reasons=explanation.reasons, code=explanation.code)
    reason = explanation.told or NO_PLACE
    code = reason.code if reason.code == NEVER_FITS else NO_PLACE.code
    return TenantExplanation(request=request, fits=False, reasons=(reason,), code=code, preempts=preempts)


__all__ = ["NO_PLACE", "Explanation", "TenantExplanation", "explain", "for_tenant"]
