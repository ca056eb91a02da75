# SPDX-License-Identifier: Apache-2.0
"""How important a VM is to its owner, and what its tenant may ask for at most.

Three names and no numbers: who could write 1000 would, and only the order ever counts.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from orchestrator.core.errors import Denied, QuotaExceeded

Priority = Literal["low", "normal", "high"]
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""From the least important."""


def rank(priority: Priority) -> int:
    """A number that only says which of two is more important."""
    return PRIORITIES.index(priority)


def check_priority(wanted: Priority, most: Priority, tenant: str) -> None:
    """:raises QuotaExceeded: ``priority.too_high``: the tenant may ask for ``most`` at most"""
    if rank(wanted) > rank(most):
        raise QuotaExceeded(
            "priority.too_high",
            f"the tenant's VMs have at most priority {most}, {wanted} was asked for",
            hint=f"ask for {most}, or let an operator raise it: 'vgpuctl policy set {tenant} max-priority={wanted}'",
        )


def check_may_preempt(allowed: bool, tenant: str) -> None:
    """:raises Denied: ``preemption.not_allowed``"""
    if not allowed:
        raise Denied(
            "preemption.not_allowed",
            "the tenant may not have other VMs stopped for its own",
            hint=f"create it without --preempt, or let an operator allow it: 'vgpuctl policy set {tenant} preempt=yes'",
        )
