# SPDX-License-Identifier: Apache-2.0
"""The host action that collects what NVIDIA's support asks for."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction


@dataclass(frozen=True, kw_only=True)
class CollectBugReport(HostAction):
    """``nvidia-bug-report.sh`` writes a file in the agent's storage; its result's message says where. Collected before
    is so already."""

    since = 11
    no_inverse = "it is evidence; the oldest go by themselves"
    report: str
    """Its name: the id of the operation that it is about."""
