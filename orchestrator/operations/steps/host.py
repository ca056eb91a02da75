# SPDX-License-Identifier: Apache-2.0
"""Taking a host into the pool and giving it back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from orchestrator.core.actions.gpu_cards import cards_of, found_mig_modes
from orchestrator.core.actions.host_actions import (
    DeleteImage,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    ImageFormat,
    ManageGpus,
    RemoveNetwork,
)
from orchestrator.core.actions.settle_ledger import SettleLedger
from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Bug, Conflict, Fatal, InvalidInput, VgpuctlError, WorldError
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.host import HostState
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.units import show_count
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.volumes import check_no_volumes

_AGENT: Final = "agent"
_NETWORK: Final = "network"
_FORMATS: dict[str, ImageFormat] = {"qcow2": "qcow2", "raw": "raw"}


def set_host_state(context: Context, state: HostState, reason: str | None = None) -> None:
    """Write the state, if the host is still there."""
    with context.begin() as tx:
        if any(host.name == context.host_name for host in tx.hosts.list()):
            tx.hosts.update(replace(tx.hosts.get(context.host_name), state=state, state_reason=reason))


def mark_failed(context: Context) -> None:
    """An operator must look at it."""
    set_host_state(context, "failed", f"operation {context.operation_id} is stuck")


def forget_host(context: Context) -> None:
    """Everything the control plane keeps of it. Gone already is fine."""
    with context.begin() as tx:
        known = [host for host in tx.hosts.list() if host.name == context.host_name]
        tx.gpu_health.keep_quarantines(context.host_name)
        tx.cleanings.give_up(context.host_name, context.world.clock.now())
        tx.hosts.remove(context.host_name)
        context.world.keys.remove(tx, context.host_name)
    for host in known:
        context.world.link.forget(host)


def _check_enrolling(context: Context) -> str:
    host = context.host()
    return f"{host.address} port {host.port}, host key pinned"


def _install_first(context: Context) -> None:
    """An agent that answers here obeyed this database before, maybe with VMs: a failure does not take it away."""
    with suppress(VgpuctlError):  # as of every new host
        if context.is_first(_AGENT):
            context.world.link.observe(context.host())
            context.note_found(_AGENT)
    _install(context)


def _install(context: Context) -> None:
    take_over = context.inputs.get("take_over") is True
    context.world.configurator.install_agent(context.host(), (), context.report, take_over=take_over)


def _uninstall(context: Context) -> None:
    host = context.host()
    context.world.configurator.remove_agent(host, context.report)
    context.world.link.forget(host)


def _uninstalled(context: Context) -> None:
    if _is_known(context):
        _uninstall(context)


def _take_back(context: Context) -> None:
    """A host that lets nobody in, and whose agent never answered, has nothing of ours: then nothing is stuck on it."""
    if not context.made(_AGENT):
        context.warnings.append(f"{context.host_name} had our agent before: it is left there")
        return
    try:
        _uninstall(context)
    except Fatal as error:
        if error.code != "host.auth_failed" or context.host().machine_id is not None:
            raise
        context.warnings.append(f"{context.host_name} lets nobody in: nothing was taken back there")


def _is_known(context: Context) -> bool:
    with context.world.store.read() as tx:
        return any(host.name == context.host_name for host in tx.hosts.list())


def _first_observation(context: Context) -> str:
    snapshot = context.observe()
    with context.begin() as tx:
        for other in tx.hosts.list():
            if other.machine_id == snapshot.machine_id and other.name != context.host_name:
                if other.state == "forgotten":
                    raise Conflict(
                        "host.forgotten",
                        f"this machine is host {other.name}, which was given up",
                        hint=f"delete its VMs, then 'vgpuctl host remove {other.name}', then add it again",
                    )
                raise Conflict(
                    "host.already_added",
                    f"this machine is host {other.name} already",
                    hint=f"use it under that name, or remove it first: 'vgpuctl host remove {other.name}'",
                )
        host = tx.hosts.get(context.host_name)
        # Its ledger may remember this site from before: what acts from now on must be newer than all of that.
        epoch = host.epoch if snapshot.epoch <= host.epoch else snapshot.epoch + 1
        tx.hosts.update(replace(host, machine_id=snapshot.machine_id, epoch=epoch))
    if snapshot.ledger_lost:  # this pool has nothing there yet: what is there is nobody's that we know
        context.perform(SettleLedger(gpus=(), functions=(), vms=()))
    return f"{snapshot.os_name}, {len(snapshot.gpus)} GPUs"


def choose_gpus(policy: str, snapshot: HostSnapshot) -> tuple[str, ...]:
    """Addresses of the GPUs that ``policy`` means on this host.

    :raises InvalidInput: ``host.no_such_gpu``, ``pci.address_invalid``
    """
    gpus_by_address = {gpu.address: gpu for gpu in snapshot.gpus}
    if policy == "all":
        return tuple(gpus_by_address)
    if policy == "unused":
        used = {device for domain in snapshot.domains for device in domain.devices}
        return tuple(address for address, gpu in gpus_by_address.items() if not _is_used(gpu, used))
    chosen = tuple(parse_pci_address(text) for text in policy.split(","))
    for address in chosen:
        if address not in gpus_by_address:
            raise InvalidInput(
                "host.no_such_gpu",
                f"the host has no NVIDIA GPU at {address}",
                hint=f"it has {', '.join(gpus_by_address) or 'none'}",
            )
    return tuple(dict.fromkeys(chosen))


def _is_used(gpu: GpuSnapshot, devices: set[str]) -> bool:
    """By a domain, by vGPUs somebody made, or by another driver."""
    functions = {gpu.address, *(parent.address for parent in gpu.parents)}
    return any(observed_on(gpu)) or bool(functions & devices) or gpu.driver not in {"nvidia", None}


def _choose(context: Context) -> str:
    with context.begin() as tx:
        snapshot = tx.hosts.snapshot(context.host_name)
        if snapshot is None:
            raise Bug("host.not_observed", "the host was not observed before its GPUs are chosen")
        chosen = choose_gpus(context.text("gpus"), snapshot)
        tx.hosts.set_gpus(context.host_name, chosen)
        tx.cards.learn(context.host_name, cards_of(snapshot.gpus))
        tx.power.learn(context.host_name, snapshot.gpus)
        tx.gpu_health.recall_quarantines(context.host_name)
        tx.cards.learn_mig_modes(context.host_name, found_mig_modes(snapshot.gpus))
    return ", ".join(chosen) or "none"


def _unchoose(context: Context) -> None:
    with context.begin() as tx:
        tx.hosts.set_gpus(context.host_name, ())


def _manage(context: Context) -> None:
    context.perform(ManageGpus(gpus=context.host().managed_gpus))


def _unmanage(context: Context) -> None:
    if _is_known(context):
        context.perform(ManageGpus(gpus=()))


def _unmanage_again(context: Context) -> None:
    """Of a host that was one before, what it was given is not known."""
    if context.made(_AGENT):
        _unmanage(context)


def _enable_functions(context: Context) -> str:
    managed = set(context.host().managed_gpus)
    enabled = []
    for gpu in context.observe().gpus:
        if gpu.address in managed and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs and gpu.driver == "nvidia":
            with context.begin() as tx:
                tx.hosts.mark_enabled(context.host_name, gpu.address, by_us=True)
            context.perform(EnableVirtualFunctions(gpu=gpu.address))
            enabled.append(gpu.address)
    return ", ".join(enabled) or "nothing to enable"


def _disable_functions(context: Context) -> None:
    with context.world.store.read() as tx:
        ours = tx.hosts.enabled_by_us(context.host_name)
    for address in ours:
        context.perform(DisableVirtualFunctions(gpu=address))
        with context.begin() as tx:
            tx.hosts.mark_enabled(context.host_name, address, by_us=False)


def _enable_again(context: Context) -> None:
    if _is_known(context):
        _enable_functions(context)


def _default_network(context: Context) -> str:
    """Of a site that has one for all tenants; theirs are made with their first VM there."""
    with context.world.store.read() as tx:
        network = tx.networks.find(DEFAULT_NAME)
    if network is None:
        return "each tenant has its own"
    if network.uplink is not None:
        return "on a bridge, where there is one"
    for action in network.ensure():
        context.make(_NETWORK, action)
    return network.name


def _remove_default_network(context: Context) -> None:
    if context.made(_NETWORK):
        context.perform(RemoveNetwork(name=DEFAULT_NAME))


def _remove_networks(context: Context) -> None:
    """Also those that were deleted since a VM needed them there: the agent knows which it has made."""
    if not _is_known(context):
        return
    with context.world.store.read() as tx:
        known = {network.name for network in tx.networks.list()}
    for name in sorted(known | set(context.observe().networks)):
        context.perform(RemoveNetwork(name=name))


def _remove_images(context: Context) -> str:
    if not _is_known(context):
        return ""
    removed = 0
    for file in context.observe().images:
        digest, _, suffix = file.name.partition(".")
        if suffix in _FORMATS:
            context.perform(DeleteImage(sha256=digest, image_format=_FORMATS[suffix]))
            removed += 1
    return f"{removed} images"


def _ready(context: Context) -> str:
    snapshot = context.observe()
    set_host_state(context, "ready")
    return f"agent {snapshot.agent_version}"


def _check_empty(context: Context) -> None:
    with context.world.store.read() as tx:
        vms = tx.vms.list(host=context.host_name)
    if vms:
        raise Conflict(
            "host.has_vms",
            f"host {context.host_name} has {show_count(len(vms), 'VM')}",
            hint=f"delete its VMs first: 'vgpuctl list-vms -A --host {context.host_name}' shows them",
        )
    with context.world.store.read() as tx:
        check_no_volumes(tx, context.host_name)
    if context.host().restored is not None:
        _check_nothing_younger(context)


def _check_nothing_younger(context: Context) -> None:
    """Of a host whose database was restored: VMs that were made since are there, and not in the database."""
    snapshot = context.observe()
    owners = [*(item.owner for item in snapshot.domains), *(item.owner for item in (*snapshot.volumes, *snapshot.data))]
    owned = [owner for owner in owners if owner is not None]
    if owned:
        raise Conflict(
            "host.has_vms",
            f"host {context.host_name} has {len(owned)} domains and disks of ours that the database does not know",
            hint="'vgpuctl server settle-restored' shows them and takes them over",
        )


def back_to_ready(context: Context) -> None:
    """Or unreachable, when it does not answer."""
    if not _is_known(context):
        return
    try:
        context.observe()
    except WorldError as error:
        set_host_state(context, "unreachable", error.message)
    else:
        set_host_state(context, "ready")


def _agent_text(context: Context) -> tuple[str, ...]:
    return (f"agent on host {context.host_name}",)


def _functions_text(context: Context) -> tuple[str, ...]:
    with context.world.store.read() as tx:
        ours = tx.hosts.enabled_by_us(context.host_name)
    return tuple(f"virtual functions of GPU {address} enabled on host {context.host_name}" for address in ours)


def _network_text(context: Context) -> tuple[str, ...]:
    return (f"libvirt networks made by us on host {context.host_name}",)


def _row_text(context: Context) -> tuple[str, ...]:
    return (f"host {context.host_name} in the database",)


_GONE = "a host that is being given back needs none"

ENROL = Step(name="enrol.1", title="pin the host key", do=_check_enrolling, undo=forget_host, remains=_row_text)
INSTALL = Step(
    name="install_agent.1",
    title="install the agent",
    do=_install_first,
    undo=_take_back,
    remains=_agent_text,
)
FIRST_OBSERVATION = Step(
    name="first_look.1", title="observe the host", do=_first_observation, no_undo_reason="it only observes"
)
CHOOSE = Step(name="choose_gpus.1", title="choose GPUs", do=_choose, undo=_unchoose)
MANAGE = Step(name="manage_gpus.1", title="take over the GPUs", do=_manage, undo=_unmanage_again)
FUNCTIONS = Step(
    name="virtual_functions.1",
    title="virtual functions",
    do=_enable_functions,
    undo=_disable_functions,
    remains=_functions_text,
)
DEFAULT_NETWORK = Step(
    name="default_network.1",
    title="default network",
    do=_default_network,
    undo=_remove_default_network,
    remains=_network_text,
)
READY = Step(name="host_ready.1", title="ready", do=_ready, no_undo_reason="the steps before it take the host back")

UPGRADE = Step(
    name="upgrade_agent.1",
    title="upgrade the agent",
    do=_install,
    no_undo_reason="the new agent serves as well as the old one",
)
BACK = Step(name="host_back.1", title="see it again", do=_ready, no_undo_reason="it only observes")

LEAVING = Step(name="leaving.1", title="check that it is empty", do=_check_empty, undo=back_to_ready)
DISABLE_FUNCTIONS = Step(
    name="disable_functions.1",
    title="virtual functions as before",
    do=_disable_functions,
    undo=_enable_again,
    remains=_functions_text,
)
REMOVE_NETWORKS = Step(
    name="remove_networks.1",
    title="networks as before",
    do=_remove_networks,
    no_undo_reason=_GONE,
    remains=_network_text,
)
REMOVE_IMAGES = Step(name="remove_images.1", title="remove base images", do=_remove_images, no_undo_reason=_GONE)
RELEASE_GPUS = Step(name="release_gpus.1", title="give back the GPUs", do=_unmanage, no_undo_reason=_GONE)
UNINSTALL = Step(
    name="uninstall_agent.1",
    title="remove the agent",
    do=_uninstalled,
    no_undo_reason=_GONE,
    remains=_agent_text,
)
FORGET = Step(name="forget_host.1", title="forget the host", do=forget_host, no_undo_reason=_GONE, remains=_row_text)
