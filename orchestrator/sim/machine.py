# SPDX-License-Identifier: Apache-2.0
"""One GPU host: kernel, libvirt, files and the agent's ledger, as small as thousands of them must be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction
from orchestrator.core.actions.settle_ledger import SettleLedger
from orchestrator.core.errors import Conflict, Denied, Fatal, Retryable
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.domain import DiskLimits, MadeAs
from orchestrator.core.hosts.features import FEATURES, HostFeature
from orchestrator.core.overlay import INTEGRATION_BRIDGE
from orchestrator.sim.kernel import Kernel, SimulatedGpu
from orchestrator.sim.pools import SimulatedPool

BOOTS_S: Final = 20.0
ReadingsPace = Literal["live", "slow", "silent"]
"""How readings come: each period, each period and late, or none, as of an agent that does not know them."""
BRIDGES: Final = (
    Bridge(name="br-int", kind="openvswitch"),
    Bridge(name="br0", kind="linux"),
    Bridge(name="br120", kind="linux", vlans=("br0.120",)),
    Bridge(name="ovsbr0", kind="openvswitch"),
)
"""What a host in memory has of its own."""


def in_ovn(bridges: tuple[Bridge, ...], host: str) -> tuple[Bridge, ...]:
    """The same, with OVN at work on a host of that name."""
    own = Bridge(name=INTEGRATION_BRIDGE, kind="openvswitch", chassis=(host,))
    return (own, *(bridge for bridge in bridges if bridge.name != INTEGRATION_BRIDGE))


@dataclass(slots=True)
class Domain:
    """A libvirt domain. ``devices``: names of its hostdevs, as ``core.device.Device`` has them."""

    name: str
    devices: tuple[str, ...]
    running: bool = False
    paused: bool = False
    """It has come from another host, and waits to be started."""
    address: str = ""
    started_at: float = 0.0
    vcpus: int = 1
    memory_mib: int = 1024
    disk_bytes: int = 0
    """Of a domain that somebody else made: what its disks hold."""
    adopted: bool = False
    data: tuple[str, ...] = ()
    """Files of its data volumes."""
    cards: int = 1
    """How many network cards it has."""
    free_ports: int = 0
    """How many devices can be plugged in while it runs."""
    affinity: tuple[str, ...] = ()
    memory_words: str = "any"
    uefi: bool = False
    """It boots by UEFI, and has a file of variables from its first start on."""
    limits: tuple[DiskLimits | None, ...] = (None,)
    """Of each of its disks, and of data volumes beside that."""
    pages: dict[str, int] = field(default_factory=dict)
    """MiB of huge pages that it takes, by ``KiB:NUMA node``."""


@dataclass(slots=True)
class SimulatedLedger:
    """On the host's disk: outlives agent and host. Values carry the boot they are good for; None: for ever."""

    site: str | None = None
    epoch: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    owners: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    """Object → (VM, boot)."""
    managed: frozenset[str] = frozenset()
    cards: dict[str, str] = field(default_factory=dict)
    """Managed GPU → UUID of its card."""
    lost: bool = False
    """It is new, and the host has files of ours."""
    mig_before: dict[str, bool] = field(default_factory=dict)
    """GPU → the MIG mode that it had before we changed it."""
    power_limits: dict[str, int] = field(default_factory=dict)
    """GPU → watts that it shall keep to."""
    passed: dict[str, tuple[str, int]] = field(default_factory=dict)
    """GPU that a VM has as a whole → (model, virtual functions that were on before)."""
    settings: dict[str, dict[str, tuple[int, str]]] = field(default_factory=dict)
    """Table of a setting → GPU that we have set → (boot, what it was before)."""
    setting_users: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """The same of the VMs that want it so."""

    def check_site(self, site: str) -> None:
        """:raises Retryable: ``host.unreachable``: there is no agent; :raises Denied: ``agent.other_site``"""
        if self.site is None:
            raise Retryable("host.unreachable", "no agent answers")
        if self.site != site:
            raise Denied("agent.other_site", "this host obeys another control plane")

    def admit(self, token: FencingToken, action: HostAction | None = None) -> None:
        """Remember the token, or refuse one that is older than what was seen. ``action``: what it comes with.

        :raises Denied: ``agent.other_site``, ``agent.stale_token``; :raises Conflict: ``agent.ledger_lost``
        """
        self.check_site(token.site)
        if self.lost and not isinstance(action, SettleLedger):
            raise Conflict("agent.ledger_lost", "the host's agent has lost its ledger")
        if token.is_stale(self.epoch, self.attempts.get(token.operation, -1)):
            raise Denied("agent.stale_token", "a newer controller or attempt took this operation over")
        if token.epoch > self.epoch:
            self.epoch = token.epoch
            self.attempts.clear()
        self.attempts[token.operation] = token.attempt


@dataclass(slots=True)
class Effect:
    """An action that reached the host and was let in, for the invariants."""

    token: FencingToken
    action: str
    vm: str | None
    stopped: bool = False
    """It powered a running domain off."""


@dataclass(slots=True)
class SimulatedMachine:
    """Everything on one host. ``index`` tells machines apart and makes their ids."""

    index: int
    kernel: Kernel
    vcpus: int
    memory_mib: int
    storage_bytes: int
    guest_boots_s: float = 4.0
    """From a domain's start until its guest has an address."""
    boot: int = 1
    now: float = 0.0
    """When the request that is being served arrived."""
    up: bool = True
    agent_deaths: int = 0
    """How many of the next steps inside actions kill the agent in the middle."""
    disk_full: bool = False
    ledger: SimulatedLedger = field(default_factory=SimulatedLedger)
    domains: dict[str, Domain] = field(default_factory=dict)
    consoles: dict[str, str] = field(default_factory=dict)
    """What domains have printed, by id."""
    volumes: dict[str, int] = field(default_factory=dict)
    """Name → bytes."""
    seeds: dict[str, int] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    """Data volumes: file → bytes."""
    images: set[str] = field(default_factory=set)
    pools: dict[str, SimulatedPool] = field(default_factory=dict)
    """By name; other machines have them too."""
    backups: dict[str, int] = field(default_factory=dict)
    """Id → bytes of its disk; other machines have them too."""
    networks: dict[str, str | None] = field(default_factory=dict)
    """Name → subnet; None: on a bridge of the host."""
    bridges: tuple[Bridge, ...] = BRIDGES
    nodes: tuple[NumaNode, ...] = ()
    features: tuple[HostFeature, ...] = tuple(FEATURES)
    """What its software can give VMs."""
    described: dict[str, MadeAs] = field(default_factory=dict)
    """What its agent remembers of VMs that it has defined."""
    bases: dict[str, str] = field(default_factory=dict)
    """Disk → base image."""
    nvram: set[str] = field(default_factory=set)
    """VMs that have a file of UEFI variables."""
    effects: list[Effect] = field(default_factory=list)
    keep_effects: bool = False
    driver_version: str = "580.95.02"
    refuses_drivers: frozenset[str] = frozenset()
    """Versions whose module does not come up here."""
    sticky_drivers: frozenset[str] = frozenset()
    """Versions that come only over a reboot: the module before them stays in use."""
    up_at: float = 0.0
    """It boots until then."""
    readings: ReadingsPace = "live"
    signals: tuple[GpuSignal, ...] = ()
    """Of its first GPU, until that is reset or the host reboots."""
    copying: dict[str, tuple[str, HostAction]] = field(default_factory=dict)
    """VM, backup or volume → what is copied for it, and the operation that asks for that."""
    foreign: set[str] = field(default_factory=set)
    """Devices and UUIDs of domains that somebody else made."""

    @property
    def machine_id(self) -> str:
        return f"{self.index:032x}"

    @property
    def boot_id(self) -> str:
        return f"{self.index}-{self.boot}"

    def gpu_at(self, address: str) -> SimulatedGpu | None:
        return next((gpu for gpu in self.kernel.gpus if gpu.address == address), None)

    def uuid_of(self, gpu: SimulatedGpu) -> str:
        return f"GPU-{self.index:08x}-{gpu.card or gpu.address}"

    def is_ours(self, gpu: SimulatedGpu) -> bool:
        """Whether the card is the one that was accepted there, as far as that is known."""
        return self.ledger.cards.get(gpu.address, self.uuid_of(gpu)) == self.uuid_of(gpu)

    def place_cards(self, cards: dict[str, str]) -> None:
        """While it is off: address → the card that is there now, by the address that it had first."""
        self.reboot()
        for gpu in self.kernel.gpus:
            gpu.card = cards.get(gpu.address, gpu.card)

    def node_of(self, gpu: str) -> int:
        """NUMA node of a GPU: the first ones are near the first node."""
        at = [card.address for card in self.kernel.gpus].index(gpu)
        return at * max(1, len(self.nodes)) // len(self.kernel.gpus)

    def owner(self, key: str) -> str | None:
        """Whose the object is; what lives in kernel memory is nobody's after a reboot."""
        owned = self.ledger.owners.get(key)
        return None if owned is None or owned[1] not in {None, self.boot} else owned[0]

    def power_off(self, vm: str) -> None:
        """The domain stops and QEMU lets go of its devices."""
        domain = self.domains[vm]
        domain.running = domain.paused = False
        self.kernel.opened -= set(domain.devices)
        for pool in self.pools.values():
            pool.close(self.machine_id, vm)

    def reboot(self) -> None:
        """Domains stay defined and do not run; the kernel forgets everything. Virtual functions are on again, and
        limits of power set, as by the agent before any controller asks; what VMs need besides is left to those."""
        self.boot += 1
        self.signals = ()
        switched_on = [gpu for gpu in self.kernel.gpus if gpu.functions]
        self.kernel.reboot()
        for gpu in switched_on:
            self.kernel.switch_functions(gpu, on=True)
        for gpu in self.kernel.gpus:
            gpu.power_limit_watts = self.ledger.power_limits.get(gpu.address, 0)
        self.foreign &= self.domains.keys()
        for pool in self.pools.values():
            pool.close(self.machine_id)
        self.agent_deaths = 0
        for domain in self.domains.values():
            domain.running = domain.paused = False

    def reboot_in_order(self) -> None:
        """One on which nothing runs; what an agent brings back then is never gone."""
        before, self.boot, self.up_at = self.boot, self.boot + 1, self.now + BOOTS_S
        owners = self.ledger.owners.items()
        self.ledger.owners = {key: (vm, self.boot if boot == before else boot) for key, (vm, boot) in owners}
        self.signals = ()
        self.kernel.stuck_resets.clear()


DONE, SO_ALREADY = ActionResult(changed=True), ActionResult(changed=False)
DESTROYED = ActionResult(changed=True, cleaned="vgpu_destroyed")
ABSENT = ActionResult(changed=False, cleaned="absent")


class AgentDied(Exception):
    """The agent's process ends here; systemd starts it again. Nobody gets an answer."""


def may_die(machine: SimulatedMachine) -> None:
    if machine.agent_deaths:
        machine.agent_deaths -= 1
        raise AgentDied


def check_disk(machine: SimulatedMachine) -> None:
    if machine.disk_full:
        raise Fatal("host.disk_full", "the host's disk is full", hint="free some space there")


def claim(machine: SimulatedMachine, key: str, vm: str, *, until_reboot: bool = False) -> None:
    owner = machine.owner(key)
    if owner is not None and owner != vm:
        raise Conflict("host.owned_by_other", f"{key} belongs to another VM")
    machine.ledger.owners[key] = (vm, machine.boot if until_reboot else None)
    may_die(machine)


def release(machine: SimulatedMachine, key: str, vm: str) -> None:
    may_die(machine)
    if machine.owner(key) in {vm, None}:
        machine.ledger.owners.pop(key, None)


def gpu_there(machine: SimulatedMachine, address: str) -> SimulatedGpu:
    """:raises Fatal: ``vgpu.function_gone``"""
    gpu = machine.gpu_at(address)
    if gpu is None:
        raise Fatal("vgpu.function_gone", f"{address} is not there")
    return gpu
