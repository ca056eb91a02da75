# SPDX-License-Identifier: Apache-2.0
"""Whose everything is that a definition takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.images.store import Storage
from orchestrator.agent.libvirt.domain_devices import DomainParts
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.nics import NicFunctions
from orchestrator.core.errors import Conflict, Denied


@dataclass(frozen=True)
class Belongings:
    storage: Storage
    kinds: Kinds
    networks: LibvirtNetworks
    nics: NicFunctions

    def check_defined(self, vm: str, parts: DomainParts) -> None:
        """Its files and network are its own, and no device is another VM's or of a GPU that is not ours. Its devices
        may still have to be made.

        :raises Conflict: ``vm.file_foreign``, ``vm.device_foreign``, ``network.foreign``
        :raises Denied: ``gpu.not_managed``
        """
        self._check_files(vm, parts)
        for network in parts.networks:
            self.networks.check_known(network)
        for device in parts.devices:
            owner = self._owner(device)
            if owner not in (None, vm):
                raise _foreign(device, owner)
            if owner is None and not self.nics.is_function(device):
                for kind in self.kinds.values():
                    kind.check_may_make(device)

    def check_started(self, vm: str, parts: DomainParts) -> None:
        """Everything is its own now, and nothing is there that we never write.

        :raises Denied: ``vm.definition_foreign``
        :raises Conflict: ``vm.file_foreign``, ``vm.device_foreign``, ``network.foreign``
        """
        if parts.others:
            raise Denied(
                "vm.definition_foreign",
                f"the VM's definition takes what no VM of ours has: {', '.join(parts.others)}",
                hint="somebody changed it on the host: starting it by vgpuctl defines it anew",
            )
        self._check_files(vm, parts)
        for network in parts.networks:
            self.networks.check_usable(network)
        self._check_devices(vm, parts.devices)

    def check_adopted(self, vm: str, parts: DomainParts) -> None:
        """Of a domain that somebody else defined: its devices are its own, and no file is one of our VMs'.

        :raises Conflict: ``vm.file_foreign``, ``vm.device_foreign``"""
        self.check_files_of_others(parts)
        self._check_devices(vm, parts.devices)

    def check_files_of_others(self, parts: DomainParts) -> None:
        """Of a domain that somebody else defined: no file is one of our VMs'. :raises Conflict: ``vm.file_foreign``"""
        for path in (*parts.files, *(image for _, image in parts.images)):
            self.storage.check_not_ours(path)

    def _check_files(self, vm: str, parts: DomainParts) -> None:
        for path in parts.files:
            self.storage.check_file_of(vm, path)
        for disk, image in parts.images:
            self.storage.check_image_beneath(vm, disk, image)

    def _check_devices(self, vm: str, devices: Iterable[str]) -> None:
        for device in devices:
            owner = self._owner(device)
            if owner != vm:
                raise _foreign(device, owner)

    def _owner(self, device: str) -> str | None:
        owners = (kind.owner_of(device) for kind in self.kinds.values())
        return next((owner for owner in owners if owner is not None), None) or self.nics.owner_of(device)


def _foreign(device: str, owner: str | None) -> Conflict:
    return Conflict(
        "vm.device_foreign",
        "the VM's definition takes a device that is not the VM's",
        hint="look at the host: 'vgpuctl doctor --host HOST'",
        details=f"{device}: {'not ours' if owner is None else f'owner {owner}'}",
    )
