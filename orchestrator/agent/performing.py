# SPDX-License-Identifier: Apache-2.0
"""Performing host actions: fence first, one VM at a time, then the one part that knows how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from orchestrator.agent.attachments.kind import Handlers, Kinds
from orchestrator.agent.belongings import Belongings
from orchestrator.agent.bug_reports import BugReports
from orchestrator.agent.copies import Copies, Copying
from orchestrator.agent.gpu_settings import VgpuParameterFiles
from orchestrator.agent.gpu_switches import GpuSwitches
from orchestrator.agent.images.backups import BackupsOfDisks
from orchestrator.agent.images.disk_growth import grow_disk
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.agent.libvirt.disk_snapshots import SnapshotsOfDisks
from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.libvirt.plugging import Plugging
from orchestrator.agent.libvirt.saved_memory import SavedMemory
from orchestrator.agent.libvirt.volume_keys import lent
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.paths import Paths
from orchestrator.agent.reboots import Reboots
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.pci import large_bar_bytes
from orchestrator.agent.turns import HOST, Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.backups import FetchVolume, FindRepositories, ListBackups, RemoveBackup, VerifyBackup
from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    AdoptDomain,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    EnsureBridgedNetwork,
    EnsureNetwork,
    FencingToken,
    HostAction,
    ManageGpus,
    ReleaseDomain,
    RemoveNetwork,
    SetMigMode,
    StartDomain,
    StopDomain,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.actions.pools import DeclarePool, LeaveDisks, ShareDisks, WithdrawPool
from orchestrator.core.actions.settle_ledger import SettleLedger
from orchestrator.core.actions.suspension import ResumeDomain, SuspendDomain
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    GrowDisk,
    PlugDevices,
    ReplaceDataVolume,
)
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.domain_xml.firmware import window_for
from orchestrator.core.errors import Denied, InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.pool import pool_of, short_of
from orchestrator.core.hosts.volume_key import check_keys

_FINISH_SECONDS = 20.0
"""systemd waits a little longer before it kills."""


@dataclass(frozen=True)
class Parts:
    """Each knows how to do some of the actions."""

    paths: Paths
    storage: Storage
    kinds: Kinds
    switches: GpuSwitches
    domains: Domains
    networks: LibvirtNetworks
    settler: Settler
    parameters: VgpuParameterFiles
    logs: ConsoleLogs
    nics: NicFunctions
    saved: SavedMemory

    def define(self, action: DefineDomain) -> ActionResult:
        """Out of what is the VM's, and nothing else."""
        variables = self.storage.nvram.owned(action.vm) if action.domain.firmware == "uefi" else nullcontext()
        with variables:
            return self._define(action)

    def _define(self, action: DefineDomain) -> ActionResult:
        return self.domains.define(action.vm, *self._definition(action))

    def _definition(self, action: DefineDomain | PlugDevices) -> tuple[str, Callable[[], None]]:
        """As XML, and what refuses what it takes and may not."""
        whole = (device.gpu for device in action.domain.devices if device.is_whole_gpu)
        xml = domain_xml(
            action.vm,
            action.domain,
            storage=str(self.storage.directory),
            image=self.storage.image_beneath(action.vm, action.domain.volume),
            dhcp_servers={name: self.networks.dhcp_servers(name) for name in action.domain.networks},
            bar_window_mib=window_for([large_bar_bytes(self.paths, gpu) for gpu in whole]),
        )
        parts = parts_of(xml)
        names = tuple(device.name for device in action.domain.devices)
        names += () if action.domain.nic is None else (action.domain.nic,)
        if parts.devices != names:
            raise InvalidInput(
                "vm.domain_invalid", "a device of the VM is called otherwise than its kind wants", details=str(names)
            )
        return xml, lambda: self.belongings.check_defined(action.vm, parts)

    def plug(self, action: PlugDevices) -> ActionResult:
        """Into one that runs; else it is defined so."""
        if not self.domains.is_active(action.vm):
            return self.define(DefineDomain(vm=action.vm, domain=action.domain))
        xml, check = self._definition(action)
        check()
        check_keys(action.domain.data, action.keys)
        self.networks.reserve(xml)
        with lent(self.saved.libvirt, action.keys):
            return self.plugging.plug(action.vm, xml)

    def ensure_bridged(self, action: EnsureBridgedNetwork) -> ActionResult:
        uplink = Uplink(bridge=action.bridge, vlan=action.vlan)
        return self.networks.ensure_bridged(action.name, uplink, action.dhcp_servers)

    def start(self, action: StartDomain) -> ActionResult:
        """What it was defined as may be older than this agent, or somebody else's."""

        def check(xml: str, adopted: bool) -> None:
            judge = self.belongings.check_adopted if adopted else self.belongings.check_started
            judge(action.vm, parts_of(xml))
            self.storage.shared.check_held(parts_of(xml).files)
            check_keys((path.rpartition("/")[2] for path in parts_of(xml).files), action.keys)
            self.networks.reserve(xml)

        if self.saved.is_kept(action.vm) and not self.domains.is_active(action.vm):
            return self.saved.resume(action, lambda xml: check(xml, False))
        with lent(self.saved.libvirt, action.keys):
            started = self.domains.start(action.vm, check)
        self.saved.discard(action.vm)  # of one that runs, or that was never written to its end
        return started

    def stop(self, action: StopDomain) -> ActionResult:
        """With its memory, if that is on disk."""
        stopped = self.domains.stop(action.vm, action.grace_seconds)
        return ActionResult(changed=True) if self.saved.discard(action.vm) and not stopped.changed else stopped

    def undefine(self, action: UndefineDomain) -> ActionResult:
        """With what it printed, its UEFI variables, and what the ledger has of devices that are gone."""
        result = self.domains.undefine(action.vm)
        self.logs.remove(action.vm)
        self.storage.nvram.remove(action.vm)
        for kind in self.kinds.values():
            kind.forget_gone(action.vm)
        return result

    @property
    def plugging(self) -> Plugging:
        """Into VMs that run."""
        return Plugging(self.domains, self.storage.directory, self.storage.data.is_open)

    @property
    def belongings(self) -> Belongings:
        """What may be whose."""
        return Belongings(self.storage, self.kinds, self.networks, self.nics)

    def adopt(self, action: AdoptDomain) -> ActionResult:
        """The devices first: as long as the domain is nobody's, nothing can be done to it. One without a device on a
        GPU of ours is none of the pool's.

        :raises Denied: ``domain.no_vgpu``"""
        if not action.devices:
            raise Denied("domain.no_vgpu", "the domain has no vGPU on a GPU that is ours", hint="it is left alone")
        for device in action.devices:
            self.kinds[device.kind].adopt(action.vm, device)
        names = tuple(device.name for device in action.devices)
        return self.domains.adopt(action.vm, names, lambda xml: self.belongings.check_files_of_others(parts_of(xml)))

    def release(self, action: ReleaseDomain) -> ActionResult:
        """In the opposite order."""
        changed = self.domains.release(action.vm)
        for device in reversed(action.devices):
            self.kinds[device.kind].release(action.vm, device)
        return ActionResult(changed=changed)

    @property
    def handlers(self) -> Handlers:
        """Of every action there is."""
        storage, switches, networks = self.storage, self.switches, self.networks
        handlers: dict[type[HostAction], Callable[..., ActionResult]] = {
            CreateVolume: storage.create_volume,
            CreateDataVolume: storage.data.create,
            DeleteDataVolume: storage.data.delete,
            AttachVolume: storage.data.attach,
            DetachVolume: storage.data.detach,
            GrowDataVolume: lambda a: storage.data.grow(a, self.plugging.resize),
            GrowDisk: lambda a: grow_disk(storage, a, self.plugging.resize),
            PlugDevices: self.plug,
            WriteSeed: lambda a: storage.write_seed(a.vm, a.seed, a.iso_base64),
            DeleteSeed: lambda a: storage.delete_seed(a.vm, a.seed),
            DeleteImage: lambda a: storage.delete_image(a.sha256, a.image_format),
            ManageGpus: lambda a: switches.manage(a.gpus),
            SetMigMode: switches.modes.set_mode,
            EnableVirtualFunctions: lambda a: switches.enable_virtual_functions(a.gpu),
            DisableVirtualFunctions: lambda a: switches.disable_virtual_functions(a.gpu),
            EnsureNetwork: lambda a: networks.ensure(a.name, a.subnet),
            EnsureBridgedNetwork: self.ensure_bridged,
            RemoveNetwork: lambda a: networks.remove(a.name),
            DefineDomain: self.define,
            UndefineDomain: self.undefine,
            StartDomain: self.start,
            ResumeDomain: self.start,
            SuspendDomain: self.saved.save,
            StopDomain: self.stop,
            AdoptDomain: self.adopt,
            ReleaseDomain: self.release,
            SettleLedger: self.settler.settle,
            AcceptGpus: switches.accept,
            DeclarePool: storage.pools.declare,
            WithdrawPool: storage.pools.withdraw,
            ShareDisks: storage.shared.share,
            LeaveDisks: storage.shared.leave,
        }
        handlers |= {**switches.settings.handlers, **switches.power.handlers, **self.parameters.handlers}
        snapshots = SnapshotsOfDisks(self.domains, storage, self.saved.ledger)
        handlers |= {**self.nics.handlers, **snapshots.handlers, **BackupsOfDisks(storage).handlers}
        handlers |= {**Reboots(self.paths, self.domains).handlers, **BugReports(self.paths).handlers}
        for kind in self.kinds.values():
            handlers |= kind.handlers
        return handlers


def _is_newer(token: FencingToken, than: FencingToken) -> bool:
    attempt = token.attempt if token.operation == than.operation else than.attempt
    return than.is_stale(token.epoch, attempt)


def _turn_of(action: HostAction) -> str:
    """Of the VM; what is about none has the host's, but what is done in a pool, which may not answer, and what takes
    long: to a backup, and to a data volume that is copied, whose removal ends that, and waits for one that makes it."""
    if isinstance(action, VerifyBackup | RemoveBackup | FindRepositories | ListBackups):
        return f"backup {getattr(action, 'backup', '') or action.target}"
    if isinstance(action, CreateDataVolume | CopyDataVolume | FetchVolume | ReplaceDataVolume | DeleteDataVolume):
        return f"volume {action.volume}"
    if isinstance(action, DeclarePool | WithdrawPool):
        return f"pool {action.name}"
    pool = pool_of(getattr(action, "volume", ""))
    return getattr(action, "vm", None) or (HOST if pool is None else f"pool {short_of(pool)}")


class Performer:
    def __init__(self, ledger: Ledger, turns: Turns, wanted: RestoreList, handlers: Handlers) -> None:
        self._ledger = ledger
        self._turns = turns
        self._wanted = wanted
        self._handlers = handlers
        self._copies = Copies()
        self._open: dict[str, tuple[FencingToken, Callable[[], object]]] = {}

    def perform(self, action: HostAction, token: FencingToken) -> ActionResult:
        """Waits for earlier actions on the same VM, then looks again whether a newer attempt came meanwhile.

        :raises Denied: ``agent.stale_token``, ``agent.other_site``; :raises Conflict: ``agent.ledger_lost``
        """
        turn = _turn_of(action)
        with self.turn(turn, token, action):
            self._wanted.before(action)
            handler = self._handlers[type(action)]
            if isinstance(action, Copying):
                result = self._copies.go_on(turn, action, token.operation, handler)
            else:
                result = handler(action)
            if not isinstance(action, SettleLedger):
                self._wanted.after(action)
            elif self._ledger.is_lost():  # what is wanted is written by the actions themselves where it was not
                self._wanted.after(action)
                self._ledger.settled()
            return result

    @contextmanager
    def turn(
        self, vm: str, token: FencingToken, action: HostAction | None = None, end: Callable[[], object] | None = None
    ) -> Iterator[None]:
        """Nothing else is done to the VM meanwhile. Waits for what is, then looks again whether a newer attempt came,
        and ends a copy of a disk that goes on for anything else.
        ``end``: ends what takes as long as its controller wants it to, when a newer attempt comes.

        :raises Denied: ``agent.stale_token``, ``agent.other_site``; :raises Conflict: ``agent.ledger_lost``
        """
        self._ledger.admit(token, action)
        held, end_held = self._open.get(vm, (token, None))
        if end_held is not None and _is_newer(token, held):
            end_held()
        with self._turns.of(vm), ExitStack() as stack:
            if end is not None:  # before it is looked at again: a newer attempt comes before that or finds this
                self._open[vm] = token, end
                stack.callback(self._open.pop, vm)
            self._ledger.admit(token, action)
            self._copies.end_others(vm, token.operation, action)
            yield

    def finish(self) -> None:
        """Wait for the actions that are under way; one that takes too long is found again by observing."""
        self._copies.end_all()
        self._turns.wait_until_none(_FINISH_SECONDS)
