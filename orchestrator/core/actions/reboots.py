# SPDX-License-Identifier: Apache-2.0
"""The host action that reboots a host."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction


@dataclass(frozen=True, kw_only=True)
class RebootHost(HostAction):
    """Refused while any domain runs. Answered before the host goes down; nothing is done on another boot than
    ``boot``."""

    since = 11
    no_inverse = "a boot that has ended does not come back"
    boot: str
    """Id of the boot that is to end, as the kernel has it."""
