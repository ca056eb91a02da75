# SPDX-License-Identifier: Apache-2.0
"""What a finding says is to be done on a host: removing what nobody wants any more, making again what VMs rely on, and
writing the ledger again that its agent has lost. The agent refuses what is not ours or is in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import DeleteImage, HostAction
from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.actions.settle_ledger import FoundMigMode, KnownVm, KnownVolume, SettleLedger
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.maintenance.maintenance import held_vms
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import shared_files
from orchestrator.core.wire import action_from_dict
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.store.transaction import Transaction


def _clean(context: Context) -> str:
    """:raises Conflict: somebody has taken it into use since it was observed"""
    return f"{_do(context)} removed"


def _mend(context: Context) -> str:
    return f"{_do(context)} made again"


def _do(context: Context) -> int:
    """How many of the repair's actions changed something."""
    documents = context.inputs.get("actions")
    actions = [action_from_dict(dict(document)) for document in documents] if isinstance(documents, list) else []
    return sum(context.perform(action).changed for action in actions if not _is_wanted(context, action))


def _is_wanted(context: Context, action: HostAction) -> bool:
    """An image may have been given a name again since."""
    if not isinstance(action, DeleteImage):
        return False
    with context.world.store.read() as tx:
        return any((image.sha256, image.format) == (action.sha256, action.image_format) for image in tx.images.list())


CLEAN = Step(
    name="clean.1",
    title="remove what is left over",
    do=_clean,
    no_undo_reason="nobody wants it, and it held nothing that could be lost",
)
MEND = Step(
    name="mend.1",
    title="make again what is missing",
    do=_mend,
    no_undo_reason="the host is as it was when VMs came there",
    remains=lambda context: (f"what 'vgpuctl doctor --host {context.host_name}' shows",),
)


_STAYS = "stays in MIG mode when it is given back, for what it was before is not known"


def _raise_epoch(context: Context) -> str:
    """The attempts that the ledger knew are lost with it: what is still on its way must be older than what comes."""
    with context.world.store.read() as tx:
        epoch = tx.hosts.get(context.host_name).epoch + 1

    def write(tx: Transaction) -> None:
        """With the end of the step: however often it is done, the epoch is raised once."""
        host = tx.hosts.get(context.host_name)
        tx.hosts.update(replace(host, epoch=max(host.epoch, epoch)))

    context.write_at_end(write)
    return f"epoch {epoch}"


def _settle(context: Context) -> str:
    host = context.host()
    with context.world.store.read() as tx:
        vms = [_itself(tx, vm) for vm in tx.vms.list(host=host.name)]
        functions = tx.hosts.enabled_by_us(host.name)
        cards = tx.cards.of_host(host.name)
        held = held_vms(tx.maintenances.active(), host.name)
        data = tuple(KnownVolume(volume=volume.file, vm=volume.vm) for volume in tx.volumes.list(host=host.name))
        shared = ((file, vm.id) for vm in vms for file in shared_files(vm) if file != vm.volume)
        data += tuple(KnownVolume(volume=file, vm=vm_id) for file, vm_id in shared)
        modes_before = tx.cards.mig_found(host.name)
    known, snapshot = (*(_known(vm, held) for vm in vms), *_keeper(host)), context.observe()
    now = {gpu.address: gpu.mig_enabled for gpu in snapshot.gpus if gpu.address in host.managed_gpus}
    modes = tuple(FoundMigMode(gpu=gpu, on=on) for gpu, on in modes_before.items() if now.get(gpu, on) is (not on))
    context.perform(SettleLedger(gpus=host.managed_gpus, functions=functions, vms=known, data=data, mig_modes=modes))
    if cards:
        context.perform(AcceptGpus(cards=cards))
    context.warnings.extend(f"GPU {gpu} {_STAYS}" for gpu, on in now.items() if on and gpu not in modes_before)
    _settle_networks(context, snapshot)
    return f"{len(vms)} VMs, {len(host.managed_gpus)} GPUs"


def _settle_networks(context: Context, snapshot: HostSnapshot) -> None:
    """Those that are there are taken up again, as when a VM comes; one that is another's now keeps nobody waiting."""
    with context.world.store.read() as tx:
        networks = [network for network in tx.networks.list() if network.name in snapshot.networks]
    for action in (action for network in networks for action in network.ensure()):
        try:
            context.perform(action)
        except Conflict as error:
            context.warnings.append(f"network {action.name}: {error.message}")


def _itself(tx: Transaction, vm: Vm) -> Vm:
    """What a place is held for: that is whose the things there are."""
    moves = vm.state == "moving" and vm.operation is not None
    return replace(vm, id=tx.operations.get(str(vm.operation)).operation.subject) if moves else vm


def _known(vm: Vm, held: Collection[str]) -> KnownVm:
    """``held``: ids of VMs that a driver upgrade starts, not the host when it boots."""
    return KnownVm(
        vm=vm.id,
        volume=vm.volume,
        seed=vm.seed,
        devices=vm.devices if vm.deallocated is None else (),
        running=vm.wanted == "running" and not (vm.id in held and vm.state == "stopped"),
        boot_policy=vm.spec.boot_policy,
        adopted=vm.spec.adopted is not None,
        nic=next(iter(giving_nic(vm.id, vm.nic if vm.deallocated is None else None)), None),
    )


def _keeper(host: Host) -> Iterator[KnownVm]:
    """GPU instances of layouts, which the agent makes again after a boot and starts no VM for."""
    devices = tuple(device for layout in host.mig_layouts for device in layout.devices)
    if devices:
        yield KnownVm(
            vm=KEEPER, volume="", seed="", devices=devices, running=True, boot_policy="ask-controller", adopted=True
        )  # fmt: skip


EPOCH = Step(name="epoch.1", title="a newer epoch", do=_raise_epoch, no_undo_reason="a higher one harms nobody")
SETTLE = Step(
    name="settle_ledger.1",
    title="write the ledger again",
    do=_settle,
    no_undo_reason="it says what is so",
    remains=lambda context: (f"the ledger of host {context.host_name}, which its agent has lost",),
)
