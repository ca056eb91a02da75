# SPDX-License-Identifier: Apache-2.0
"""Virtual functions of network cards: given to vfio-pci for a VM, given back as they were, and observed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from orchestrator.agent.attachments.device_files import DeviceFiles, check_address
from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.nic_links import NicLinks
from orchestrator.agent.sysfs import binding, nics, pci, reading
from orchestrator.agent.sysfs.binding import VFIO
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.nics import GiveNicFunction, TakeNicFunction
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.nic import HostNic, NicFunction

_PREFIX: Final = "nic:"


@dataclass(frozen=True, kw_only=True)
class _Before:
    """What a function was before a VM got it."""

    driver: str | None
    """None: it had none, as just after it was switched on, or the ledger was lost meanwhile. The kernel then finds one,
    unless the card's ``sriov_drivers_autoprobe`` says that functions have none."""
    override: str
    mac: str | None
    """None: the card did not tell."""

    def to_text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True)
class NicFunctions:
    files: DeviceFiles
    links: NicLinks

    @property
    def handlers(self) -> Handlers:
        return {GiveNicFunction: self.give, TakeNicFunction: self.take_back}

    def give(self, action: GiveNicFunction) -> ActionResult:
        """:raises Conflict: ``nic.foreign``, ``nic.in_use``, ``host.owned_by_other``
        :raises Fatal: ``nic.function_gone``, ``nic.no_reset``, ``host.no_vfio``, ``gpu.bind_refused``"""
        paths, key = self.files.paths, _key(action.vf)
        self._see_function(action)
        owner = self.files.ledger.owner(key)
        if owner is not None and owner.vm != action.vm:
            raise Conflict("nic.foreign", f"network function {action.vf} is another VM's", details=f"owner {owner.vm}")
        if owner is None:
            self._check_may_give(action)
            self.files.ledger.claim(key, action.vm, detail=self._now(action).to_text(), until_reboot=True)
        if binding.is_passed_through(paths, action.vf):
            return ActionResult(changed=False)
        binding.load_vfio(paths)
        refused = self._set_mac(action.card, action.vf, action.mac)
        binding.set_override(paths, self.files.write_file, action.vf, VFIO)
        binding.move(paths, self.files.write_file, action.vf, VFIO)
        return ActionResult(changed=True, message="" if refused is None else f"no hardware address set: {refused}")

    def take_back(self, action: TakeNicFunction) -> ActionResult:
        """:raises Conflict: ``vgpu.in_use``; :raises Fatal: ``gpu.bind_refused``"""
        check_address(action.vf)
        paths, key, write = self.files.paths, _key(action.vf), self.files.write_file
        owner = self.files.ledger.owner(key)
        if owner is None or owner.vm != action.vm:
            return ActionResult(changed=False)
        before = _Before(**json.loads(owner.detail))
        if paths.pci(action.vf).exists():
            self.files.check_unused(paths.pci(action.vf), action.vf)
            if binding.is_passed_through(paths, action.vf):
                binding.move(paths, write, action.vf, None)
            if before.mac is not None:
                self._set_mac(action.card, action.vf, before.mac)
            binding.set_override(paths, write, action.vf, before.override)
            if before.driver is not None:
                binding.move(paths, write, action.vf, before.driver)
            else:
                binding.probe(paths, write, action.vf)
        self.files.ledger.release(key)
        return ActionResult(changed=True)

    def settle(self, action: GiveNicFunction) -> None:
        """Write down whose it is where the ledger was lost. One that vfio-pci does not have is nobody's."""
        paths, key = self.files.paths, _key(action.vf)
        if (
            self.is_function(action.vf)
            and binding.is_passed_through(paths, action.vf)
            and self.files.ledger.owner(key) is None
        ):
            before = _Before(driver=None, override="", mac=None)
            self.files.ledger.claim(key, action.vm, detail=before.to_text(), until_reboot=True)

    def owner_of(self, name: str) -> str | None:
        """The VM that has the function of this address; None: none of ours."""
        return self.files.owner_of(_key(name))

    def is_function(self, name: str) -> bool:
        """Whether it is a virtual function of a network card."""
        card = pci.physical_gpu(self.files.paths, name)
        return card != name and nics.is_nic(self.files.paths, card)

    def observe(self) -> tuple[HostNic, ...]:
        return tuple(
            HostNic(
                address=nic.address, vendor=nic.vendor, device=nic.device, numa_node=nic.numa_node,
                bridges=nic.bridges, interface=nic.interface,
                functions=tuple(self._function(address) for address in nic.functions),
            )
            for nic in nics.nics(self.files.paths)
        )  # fmt: skip

    def _function(self, address: str) -> NicFunction:
        owner = self.owner_of(address)
        held = None if owner is not None else nics.why_held(self.files.paths, address)
        return NicFunction(address=address, owner=owner, held=held)

    def _see_function(self, action: GiveNicFunction) -> None:
        """It is there, or is switched on with all others of a card that has none: as after a boot."""
        paths = self.files.paths
        for address in (action.card, action.vf):
            check_address(address)
        count = paths.pci(action.card) / "sriov_numvfs"
        if nics.is_nic(paths, action.card) and reading.number(count) == 0:
            self.files.write_file(count, str(action.functions))
        if not nics.is_nic(paths, action.card) or action.vf not in pci.virtual_functions(paths, action.card):
            raise Fatal(
                "nic.function_gone",
                f"network card {action.card} has no function {action.vf}",
                hint="how many functions are switched on is the host's own to say: look at its sriov_numvfs",
            )

    def _check_may_give(self, action: GiveNicFunction) -> None:
        held = nics.why_held(self.files.paths, action.vf)
        if held is not None:
            raise Conflict(
                "nic.in_use", f"network function {action.vf} can be no VM's: {held}",
                hint="give it back on the host, or another one is taken when the VM is made anew",
            )  # fmt: skip
        if not binding.reset_methods(self.files.paths, action.vf):
            raise Fatal(
                "nic.no_reset",
                f"the kernel knows no way to reset network function {action.vf}",
                hint="what one VM leaves on it would be the next one's to read",
            )

    def _now(self, action: GiveNicFunction) -> _Before:
        paths, place = self.files.paths, self._place(action.card, action.vf)
        return _Before(
            driver=binding.driver_of(paths, action.vf),
            override=binding.override_of(paths, action.vf),
            mac=None if place is None else self.links.mac_of(*place),
        )

    def _set_mac(self, card: str, function: str, mac: str) -> str | None:
        """What is against it; None: it is set."""
        place = self._place(card, function)
        if place is None:
            return "the card has no interface of its own, or none with such addresses"
        return self.links.set_mac(*place, mac)

    def _place(self, card: str, function: str) -> tuple[str, int] | None:
        """The card's interface and the function's number there."""
        interface, functions = nics.interface_of(self.files.paths, card), pci.virtual_functions(self.files.paths, card)
        if interface is None or function not in functions or not nics.has_mac(self.files.paths, card):
            return None
        return interface, functions.index(function)


def _key(function: str) -> str:
    return f"{_PREFIX}{function}"
