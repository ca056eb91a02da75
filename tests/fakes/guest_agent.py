# SPDX-License-Identifier: Apache-2.0
"""A running domain whose guest has a guest agent, as libvirt shows it: frozen or not, answering or silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libvirt

from orchestrator.core.errors import NotFound
from tests.unit.agent.fake_timing import FakeTiming

SILENT = libvirt.VIR_ERR_AGENT_UNRESPONSIVE
REFUSED = libvirt.VIR_ERR_INTERNAL_ERROR


def said(code: int, words: str) -> libvirt.libvirtError:
    error = libvirt.libvirtError(words)
    error.err = (code, libvirt.VIR_FROM_QEMU, words, 2, None, None, None, -1, -1)
    return error


class GuestWithAgent:
    """Stands in for the agent's ``Domains`` as well: it has the one domain."""

    def __init__(self, *, connected: bool = True, file_systems: int = 2) -> None:
        self.connected, self.file_systems = connected, file_systems
        self.frozen, self.runs = False, True
        self.refuses: dict[str, int] = {}
        """Code of libvirt's error, by what is asked."""
        self.late = False
        """It freezes after whoever asked has given up."""
        self.asked: list[str] = []
        self.limits: list[int] = []
        self.timing = FakeTiming()

    def is_active(self, _vm: str) -> bool:
        return self.runs

    def on_own_domain(self, _vm: str, function: Callable[[Any], Any], **_: Any) -> Any:
        if not self.runs:
            raise NotFound("vm.not_found", "the VM is not defined on this host")
        return function(self)

    def isActive(self) -> bool:  # noqa: N802 - libvirt's name
        return self.runs

    def XMLDesc(self, _flags: int = 0) -> str:  # noqa: N802
        return f"<domain><devices>{self.channel}</devices></domain>"

    @property
    def channel(self) -> str:
        state = "connected" if self.connected else "disconnected"
        port = f"<target type='virtio' name='org.qemu.guest_agent.0' state='{state}'/>"
        return f"<channel type='unix'>{port}</channel>"

    def agentSetResponseTimeout(self, seconds: int, _flags: int = 0) -> None:  # noqa: N802
        self.limits.append(seconds)

    def fsFreeze(self) -> int:  # noqa: N802
        self.asked.append("freeze")
        if self.late:
            self.frozen = True
        self._may_refuse("freeze")
        self.frozen = self.file_systems > 0
        return self.file_systems

    def fsThaw(self) -> int:  # noqa: N802
        self.asked.append("thaw")
        self._may_refuse("thaw")
        was, self.frozen = self.frozen, False
        return self.file_systems if was else 0

    def _may_refuse(self, what: str) -> None:
        if what in self.refuses:
            raise said(self.refuses[what], f"guest agent: no {what}")
