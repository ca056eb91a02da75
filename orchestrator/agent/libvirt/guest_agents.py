# SPDX-License-Identifier: Apache-2.0
"""File systems of guests stand still for the moment in which a copy of a disk begins, where a guest agent can do that.

A guest that stays frozen is worse than a copy that is what a power cut leaves. So it is written down before a guest is
asked, and it is thawed whatever happens: at once, by the next agent where this one dies in between, and again and again
where the guest does not answer.
"""

from __future__ import annotations

import logging
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import libvirt

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import CALL_SECONDS
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.core.domain_xml.guest_agent import is_connected
from orchestrator.core.errors import Conflict, NotFound, VgpuctlError
from orchestrator.core.vms.disk_snapshot import NO_GUEST_AGENT, QUIESCED, quiesce_refused

log = logging.getLogger(__name__)

_FREEZE_S: Final = 10
"""How long a guest may take to write out what it has in memory: its programs stand still meanwhile."""
_ANSWER_S: Final = 5
_THAW_S: Final = 20.0
"""How long whoever freezes goes on asking for the opposite; then somebody else does, for the longer time."""
_THAW_LATER_S: Final = 600.0
_PAUSE_S: Final = 0.5
_REFUSALS: Final = 3
"""So many times a guest agent that answers may refuse to thaw: it has nothing frozen, or cannot."""
_NO_ANSWER: Final = frozenset({
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_AGENT_UNSYNCED, libvirt.VIR_ERR_OPERATION_INVALID,
    getattr(libvirt, "VIR_ERR_AGENT_COMMAND_TIMEOUT", libvirt.VIR_ERR_AGENT_UNRESPONSIVE),
})  # fmt: skip
"""Also of a guest that stands still for another reason, as where its host's disk is full."""
_FROZEN: Final = "frozen:"
_OWN_CONNECTION: Final = {"limit_s": CALL_SECONDS + 1}
"""A guest that keeps libvirt waiting takes none of the calls that all VMs share."""


@dataclass(frozen=True)
class GuestAgents:
    """The ledger has each guest that may be frozen. Whoever freezes has the VM's turn."""

    domains: Domains
    ledger: Ledger

    def quiesce(self, vm: str, begin: Callable[[], object]) -> str:
        """``begin`` is called once, whatever the guest says. How it was, as ``core.vms.disk_snapshot`` has it.

        :raises WorldError: what ``begin`` raises"""
        refusal = self._freeze(vm)
        if refusal is not None:
            begin()
            return refusal
        try:
            begin()
        finally:
            thawed = self._thaw(vm)
        # A guest may thaw by itself, as Windows does after ten seconds: then nothing says that it was frozen still.
        return QUIESCED if thawed > 0 else quiesce_refused("nothing was frozen any more when it was to be thawed")

    def thaw_left(self) -> None:
        """What an agent has left that died in between, in the background."""
        for vm in self.ledger.owned(_FROZEN):
            self._thaw_later(vm)

    def _freeze(self, vm: str) -> str | None:
        """None: it is frozen."""
        try:
            if not self._call(vm, _has_guest_agent):
                return NO_GUEST_AGENT
            if self.ledger.owner(f"{_FROZEN}{vm}") is not None:
                return quiesce_refused("it has not answered since it was frozen last")
            self.ledger.claim(f"{_FROZEN}{vm}", vm, until_reboot=True)
            frozen = self._call(vm, _freeze)
        except VgpuctlError as error:
            frozen = error.details or error.message
        if isinstance(frozen, int) and frozen > 0:
            return None
        self._thaw(vm)
        return quiesce_refused("it froze nothing" if isinstance(frozen, int) else frozen)

    def _thaw(self, vm: str) -> int:
        """How many file systems were frozen until then, as far as is known."""
        thawed = self._ask_to_thaw(vm, _THAW_S)
        if thawed is None:
            self._thaw_later(vm)
            return 0
        self.ledger.release(f"{_FROZEN}{vm}")
        return thawed

    def _thaw_later(self, vm: str) -> None:
        def thaw() -> None:
            if self._ask_to_thaw(vm, _THAW_LATER_S) is None:
                log.error("the guest of VM %s may be frozen: its guest agent does not answer", vm)
            self.ledger.release(f"{_FROZEN}{vm}")

        threading.Thread(target=thaw, name="thaw", daemon=True).start()

    def _ask_to_thaw(self, vm: str, limit_s: float) -> int | None:
        """How many were frozen until then; 0 also of a VM that does not run any more. None: it has not answered."""
        timing, refusals = self.domains.timing, 0
        deadline = timing.monotonic() + limit_s
        while timing.monotonic() < deadline:
            try:
                thawed: int | None = self._call(vm, _thaw)
            except (NotFound, Conflict):  # it is not here any more
                return 0
            except VgpuctlError:
                thawed = None
            if thawed is not None and thawed >= 0:
                return thawed
            refusals += thawed is not None
            if refusals == _REFUSALS:
                return 0
            timing.sleep(_PAUSE_S)
        return None

    def _call(self, vm: str, function: Callable[[Any], Any]) -> Any:
        return self.domains.on_own_domain(vm, function, **_OWN_CONNECTION)


def _has_guest_agent(domain: Any) -> bool:
    return is_connected(ET.fromstring(domain.XMLDesc(0)))  # noqa: S314 - libvirt's own


def _freeze(domain: Any) -> int | str:
    """How many file systems; or why none is."""
    try:
        domain.agentSetResponseTimeout(_FREEZE_S)
        return int(domain.fsFreeze())
    except libvirt.libvirtError as error:
        return str(error)


def _thaw(domain: Any) -> int | None:
    """How many file systems; -1: it refuses. None: it does not answer."""
    if not domain.isActive():
        return 0
    try:
        domain.agentSetResponseTimeout(_ANSWER_S)
        return max(0, int(domain.fsThaw()))
    except libvirt.libvirtError as error:
        return None if error.get_error_code() in _NO_ANSWER else -1
