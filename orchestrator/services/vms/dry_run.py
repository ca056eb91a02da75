# SPDX-License-Identifier: Apache-2.0
"""What a create would do on its host."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import (
    DefineDomain,
    EnsureBridgedNetwork,
    EnsureNetwork,
    HostAction,
    StartDomain,
    WriteSeed,
)
from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.attachments import make
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.disk_snapshot import SnapshotSource
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.network import Network, dhcp_servers
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.operations.steps.backups import fetched_disk
from orchestrator.operations.steps.storage import copy_action, create_volume_action
from orchestrator.operations.steps.volumes import giving


def xml_of(vm: Vm, image: Image, actions: tuple[HostAction, ...]) -> str:
    """The definition that the host will write, in the directory that agents have by themselves."""
    servers = {
        action.name: dhcp_servers(action)
        for action in actions
        if isinstance(action, (EnsureNetwork, EnsureBridgedNetwork))
    }
    return domain_xml(vm.id, vm.domain, image=image.file, dhcp_servers=servers)


def actions_of(
    vm: Vm,
    image: Image,
    networks: tuple[Network, ...],
    volumes: tuple[Volume, ...],
    source: SnapshotSource | Backup | None,
) -> tuple[HostAction, ...]:
    """Every host action of a create, in order. The seed's content is left out: it holds the user's data."""
    actions: list[HostAction] = [
        *(action for network in networks for action in network.ensure()),
        _disk(vm, image, source),
        *giving(vm, volumes),
        WriteSeed(vm=vm.id, seed=vm.seed, iso_base64=""),
    ]
    define = DefineDomain(vm=vm.id, domain=vm.domain)
    if vm.spec.start:
        start = StartDomain(vm=vm.id, boot_policy=vm.spec.boot_policy)
        made = (action for device in vm.devices for action in make(vm.id, device))
        return (*actions, *made, *giving_nic(vm.id, vm.nic), define, start)
    return (*actions, define)


def _disk(vm: Vm, image: Image, source: SnapshotSource | Backup | None) -> HostAction:
    """Without the password of a backup's repository, and without the keys of its bucket."""
    if isinstance(source, Backup):
        opened = {"target": source.target, "of_vm": source.vm, "password": ""}
        return fetched_disk(vm, image, source, opened)
    return create_volume_action(vm, image) if source is None else copy_action(vm, source)
