# SPDX-License-Identifier: Apache-2.0
"""Data volumes and network cards of a domain that runs: attached and detached, the size and limits of its disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.agent.libvirt.domain_devices import read_domain_xml
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.domain_xml.interface import is_overlay, mac_address
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.domain import BURST_S
from orchestrator.core.vms.network import MAX_CARDS

_LET_GO_S: Final = 30.0
"""How long a guest may take to let go of a device. Linux waits 5 s before it powers a slot down (pciehp)."""
_POLL_S: Final = 0.25
_DATA: Final = "data"
"""What directories of data volumes are called, the agent's own and those of pools."""
_LIVE: Final = libvirt.VIR_DOMAIN_AFFECT_LIVE
_CONFIG: Final = libvirt.VIR_DOMAIN_AFFECT_CONFIG

_LIMITS: Final = ("total_bytes_sec", "total_iops_sec", "total_bytes_sec_max", "total_iops_sec_max")
Plugs = dict[tuple[str, ...], ET.Element]
"""What is plugged in and out, by what it is: a volume's file, a card's address and network."""


@dataclass(frozen=True)
class Plugging:
    """Whoever calls has the VM's turn. ``storage``: the agent's directory, in which those of data volumes are.
    ``is_open``: whether a process has the file of that path."""

    domains: Domains
    storage: Path
    is_open: Callable[[str], bool]

    def plug(self, vm: str, xml: str) -> ActionResult:
        """Bring a running domain and its definition to what ``xml`` says of volumes and cards.

        :raises Conflict: ``vm.no_port``, ``vm.foreign_domain``, ``vm.adopted``: nothing was changed
        :raises Fatal: ``vm.device_kept``: the guest has not let go, and may yet; ``vm.plug_refused``"""
        wanted, live, defined = self._plugs(vm, xml), self._running(vm), self._plugs(vm, self.domains.definition(vm))
        self._check_ports(vm, wanted.keys() - live.keys(), live.keys() - wanted.keys())
        to_limit = [
            (plugs[key], _limits_of(wanted[key]), flag)
            for plugs, flag in ((live, _LIVE), (defined, _CONFIG))
            for key in plugs.keys() & wanted.keys()
            if _limits_of(plugs[key]) != _limits_of(wanted[key])
        ]
        if wanted.keys() == live.keys() == defined.keys() and not to_limit:
            return ActionResult(changed=False)
        self.domains.definition_changes(vm)
        for key in [key for key in live if key not in wanted]:
            self._take_out(vm, key, live[key])
        for key in [key for key in defined if key not in wanted]:
            self._call(vm, "detachDeviceFlags", defined[key], _CONFIG)
        for key in [key for key in wanted if key not in live or key not in defined]:
            device = self._named(vm, wanted[key])
            self._call(vm, "attachDeviceFlags", device, _LIVE * (key not in live) | _CONFIG * (key not in defined))
        for device, limits, flag in to_limit:
            self._limit(vm, _of(device, "target", "dev"), limits, flag)
        return ActionResult(changed=True)

    def _limit(self, vm: str, target: str, limits: Mapping[str, int], flag: int) -> None:
        """All numbers are said, as libvirt keeps those that are not, and QEMU takes no length of bursts that are none.

        :raises Fatal: ``vm.limit_refused``"""
        numbers = {name: limits.get(name, 0) for name in _LIMITS}
        numbers |= {f"{name}_length": BURST_S if numbers[name] else 0 for name in _LIMITS if name.endswith("_max")}
        self.domains.on_own_domain(
            vm,
            lambda domain: domain.setBlockIoTune(target, numbers, flag),
            code="vm.limit_refused",
            message="libvirt refused to limit the VM's disk",
        )

    def resize(self, vm: str, path: Path, size_bytes: int) -> bool:
        """Make a disk larger whose file a running domain has; its guest is told. False: it does not have it.

        :raises Fatal: ``volume.resize_refused``"""
        root = ET.fromstring(self._xml(vm)) if self.domains.is_active(vm) else ET.Element("domain")  # noqa: S314 - libvirt's
        disks = (disk for disk in root.findall("./devices/disk") if _of(disk, "source", "file") == str(path))
        target = next((disk.find("target") for disk in disks), None)
        if target is None:
            return False
        self.domains.on_own_domain(
            vm,
            lambda domain: domain.blockResize(target.get("dev"), size_bytes, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES),
            code="volume.resize_refused",
            message="libvirt did not make the disk larger",
        )
        return True

    def _running(self, vm: str) -> Plugs:
        return self._plugs(vm, self._xml(vm)) if self.domains.is_active(vm) else {}

    def _xml(self, vm: str) -> str:
        return str(self.domains.on_own_domain(vm, lambda domain: domain.XMLDesc()))

    def _plugs(self, vm: str, xml: str) -> Plugs:
        """What somebody has plugged in by hand is none."""
        root = ET.fromstring(xml)  # noqa: S314 - libvirt's, or written by ourselves
        ours = {mac_address(vm, card) for card in range(MAX_CARDS)}
        plugs: Plugs = {}
        for disk in root.findall("./devices/disk/source[@file]/.."):
            file = _of(disk, "source", "file")
            if file.startswith(f"{self.storage}/") and Path(file).parent.name == _DATA:
                plugs["disk", file] = disk
        for card in root.findall("./devices/interface"):
            mac, network = _of(card, "mac", "address"), _of(card, "source", "network")
            if mac in ours and (is_overlay(card, vm) or card.get("type") == "network"):
                plugs["interface", mac, network] = card
        return plugs

    def _check_ports(self, vm: str, coming: set[tuple[str, ...]], going: set[tuple[str, ...]]) -> None:
        free = read_domain_xml(self._xml(vm)).free_ports + len(going)
        if len(coming) > free:
            raise Conflict(
                "vm.no_port",
                "the running VM has no free PCIe port for it",
                hint="stop the VM, attach it and start the VM: then it has ports for all that it has, and spare ones",
                details=f"{len(coming)} to attach, {free} ports free",
            )

    def _take_out(self, vm: str, key: tuple[str, ...], device: ET.Element) -> None:
        refusal = ""
        try:
            self._call(vm, "detachDeviceFlags", device, _LIVE)
        except Fatal as error:  # also while an earlier request waits for the guest
            refusal = error.details or ""
        deadline = self.domains.timing.monotonic() + _LET_GO_S
        while key in self._running(vm) or (key[0] == "disk" and self.is_open(key[1])):
            if self.domains.timing.monotonic() >= deadline:
                raise Fatal(
                    "vm.device_kept",
                    f"the guest did not let go of it within {_LET_GO_S:.0f} s; it was asked, and may still do so",
                    hint="unmount it there, and wait until the guest has booted; then ask again, or stop the VM first",
                    details=refusal or key[-1],
                )
            self.domains.timing.sleep(_POLL_S)

    def _named(self, vm: str, device: ET.Element) -> ET.Element:
        """A disk gets a name that no disk has, neither now nor in the definition."""
        target = device.find("target")
        if device.tag == "disk" and target is not None:
            texts = (self._xml(vm), self.domains.definition(vm))
            taken = {name for text in texts for name in read_domain_xml(text).disks}
            names = (f"vd{letter}" for letter in ascii_lowercase)
            target.set("dev", next((name for name in names if name not in taken), target.get("dev", "")))
        return device

    def _call(self, vm: str, method: str, device: ET.Element, flags: int) -> None:
        text = ET.tostring(device, encoding="unicode")

        def call(domain: Any) -> None:
            getattr(domain, method)(text, flags)

        self.domains.on_own_domain(
            vm, call, code="vm.plug_refused", message=f"libvirt refused to change the VM's {device.tag}"
        )


def _limits_of(device: ET.Element) -> dict[str, int]:
    """By libvirt's names; nothing of what is no disk."""
    return {name: int(text) for name in _LIMITS if (text := device.findtext(f"iotune/{name}"))}


def _of(device: ET.Element, part: str, name: str) -> str:
    element = device.find(part)
    return "" if element is None else element.get(name, "")
