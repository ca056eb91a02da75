# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a host itself: it cannot be worked on, or lacks what every VM there relies on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from orchestrator.core.diff.finding import ExpectedHost, Finding, Repair, host_finding
from orchestrator.core.drivers.lock import DriverLock, lock_of
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.hosts.host import LOST, Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.overlay import port_id
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.core.units import GIB

_SHOWN = 300
MIN_FREE_BYTES = GIB
"""Below it disks of VMs cannot grow, and soon the agent cannot write its ledger."""
_LET_PING = (
    "slow tunnels are not noticed: on the host, sysctl -w net.ipv4.ping_group_range='0 2147483647', and that setting "
    "in /etc/sysctl.d for its next boot"
)
_MAKE_ROOM = "VMs' disks cannot grow, and at 0 the agent changes nothing more: delete VMs, or make room there"
_CUT_OFF = "it is made again, and the VMs that run are plugged into it"
_CONFINED = "QEMU confined by AppArmor or SELinux"


def host_findings(host: Host) -> tuple[Finding, ...]:
    """What keeps a host from being looked at or worked on."""
    if host.restored is not None and host.state == "ready":
        return (_restored(host),)
    if host.state not in LOST:
        return ()
    why = {
        "unreachable": "nothing is known of it until it answers; its VMs are left alone",
        "quarantined": "another machine or key answers: nothing is done there until it is added again",
        "forgotten": f"it was given up: delete its VMs, then 'vgpuctl host remove {host.name}' ends the record of it",
        "failed": "an operation on it is stuck: 'vgpuctl operation list --state stuck' shows it",
    }
    differ = ("ready", host.state_reason or host.state)
    return (host_finding(host, f"host.{host.state}", "error", differ, why[host.state]),)


def unreached_findings(host: Host, controllers: Sequence[str]) -> tuple[Finding, ...]:
    """Controllers that do not reach a host which others reach."""
    if host.state != "ready" or not controllers:
        return ()
    differ = ("every controller reaches it", f"not reached from {', '.join(controllers)}"[:_SHOWN])
    reason = "the controllers that reach it do what is to be done there"
    return (host_finding(host, "host.unreached", "warning", differ, reason),)


def host_broke(host: Host, what: Sequence[str]) -> Finding:
    """What it answered was none of what we expect of any host. ``what``: names of the exceptions."""
    differ = ("answers that can be dealt with", f"unexpected {', '.join(sorted(set(what)))}")
    return host_finding(
        host, "host.broke", "error", differ, "what is known of it may be old; the server's log says what broke"
    )


def _restored(host: Host) -> Finding:
    differ = ("what the database says", "the database was restored, and the host may have gone on since")
    why = "nothing is repaired there by itself until 'vgpuctl server settle-restored' lists nothing of it any more"
    return replace(host_finding(host, "host.restored", "warning", differ, why), whose="unknown")


def half_observed(host: Host, problem: str) -> Finding:
    """No domains and a problem: libvirt may not have answered, and what was not seen is not missing."""
    reason = "nothing is concluded from half an observation; put the host's own problem right"
    return host_finding(host, "host.half_seen", "error", ("an observation of everything", problem), reason)


def sessions_full(host: Host) -> Finding:
    differ = ("places free for controllers' sessions", "all places of its agent are or were taken")
    reason = "silent sessions give way; on the host 'systemctl restart vgpuctl-agent' ends all, and no VM stops"
    return host_finding(host, "agent.sessions_full", "error", differ, reason)


def too_old(host: Host, snapshot: HostSnapshot) -> Finding:
    """VMs run on; what the older agent would have to be told it does not understand, or believes too easily."""
    differ = (f"an agent of protocol {PROTOCOL_VERSION}", f"{snapshot.agent_version}, protocol {snapshot.protocol}")
    reason = "the agent is upgraded, a few hosts at a time; until then nothing new is made there"
    repair = Repair(kind="upgrade_agent", automatic=True)
    return replace(host_finding(host, "agent.too_old", "error", differ, reason), repair=repair)


def ledger_lost(host: Host) -> Finding:
    """Its agent does nothing before that; and whose what is, only the ledger says."""
    differ = ("a ledger of what is ours", "one that is new, and files of VMs")
    reason = "it is written again from the database and what the host shows; what neither knows is left nobody's"
    repair = Repair(kind="settle_ledger", automatic=False)
    return replace(host_finding(host, "host.ledger_lost", "error", differ, reason), repair=repair)


def confinement_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one: nothing keeps its QEMUs to their own files. None where an operator allowed it, and where something
    else explains that it was not told."""
    if snapshot.confinement == "none" and not host.allow_unconfined:
        why = f"nothing new is put there; switch one on, or 'vgpuctl host set {host.name} --allow-unconfined'"
        yield host_finding(host, "host.unconfined", "warning", (_CONFINED, "neither is on in libvirt"), why)
    if snapshot.confinement is None and not snapshot.agent_too_old and not snapshot.problems:
        why = f"VMs are put there as before; 'vgpuctl host upgrade-agent {host.name}' brings one that tells"
        differ = (_CONFINED, "an agent that does not tell")
        yield host_finding(host, "host.confinement_unknown", "warning", differ, why)


def fabric_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one."""
    if snapshot.fabric is not None and snapshot.fabric.problem is not None:
        differ = ("a fabric manager that activates partitions", snapshot.fabric.problem)
        why = "no GPU of it is given out as a whole until it does; what runs there is left alone"
        yield host_finding(host, "host.fabric", "warning", differ, why)


def driver_findings(lock: DriverLock | None, host: Host, snapshot: HostSnapshot) -> tuple[Finding, ...]:
    """Its driver, or what belongs to it, is not what is locked. None when no version is locked for it, or it has that
    version. Of fabric manager and DCGM only what was seen counts: a host may do without them."""
    if lock is None:
        return ()
    meant = lock_of(lock, host.labels)
    fabric = None if snapshot.fabric is None else snapshot.fabric.version
    drifts = (
        ("driver", "host", meant.version("host_driver"), snapshot.driver_version or "that does not answer"),
        ("fabric manager", "fabric manager of", meant.version("fabric_manager"), fabric),
        ("DCGM", "DCGM of", meant.version("dcgm"), snapshot.dcgm_version),
    )
    why = f"locked by {meant.group}; 'vgpuctl driver check' shows all hosts and VMs"
    return tuple(
        host_finding(host, "driver.drift", "warning", (f"{what} {wanted}", f"{what} {seen}"), why, f"{of} {host.name}")
        for what, of, wanted, seen in drifts
        if wanted is not None and seen not in {None, wanted}
    )


def disk_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one."""
    free = snapshot.storage_free_bytes
    if free < MIN_FREE_BYTES:
        differ = (f"{MIN_FREE_BYTES >> 20} MiB free for VMs' disks and the ledger", f"{free >> 20} MiB")
        yield host_finding(host, "host.disk_full", "error", differ, _MAKE_ROOM)


def qemu_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """At most one: VMs that run by a QEMU which a package has replaced since."""
    older = {domain.uuid for domain in snapshot.domains if domain.qemu_replaced}
    vms = [expected.vm.full_name for expected in wanted.vms if expected.vm.id in older]
    if vms:
        differ = (f"QEMU {snapshot.qemu_version} under each VM", f"another one under {', '.join(vms)}"[:_SHOWN])
        why = "a move to another host, a drain, or a stop and a start has them run by the one that is installed"
        yield host_finding(wanted.host, "host.older_qemu", "info", differ, why)


def ovn_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Where VMs have cards in OVN."""
    vms = [expected.vm.full_name for expected in wanted.vms if expected.vm.ports]
    why = outside_ovn(snapshot.bridges, wanted.host.name)
    if vms and why is not None:
        differ = (f"OVN at work for {', '.join(vms)}"[:_SHOWN], why)
        reason = "what was set up goes on, nothing new is, and no such VM is put there: look at ovn-controller there"
        yield host_finding(wanted.host, "host.no_ovn", "error", differ, reason)
    for bridge in snapshot.bridges:
        if vms and bridge.silent_tunnels:
            differ = ("tunnels to all hosts of OVN", "; ".join(bridge.silent_tunnels)[:_SHOWN])
            reason = "VMs there and here do not meet: look at the network between the hosts, UDP port 6081"
            yield host_finding(wanted.host, "ovn.tunnel_silent", "warning", differ, reason)
        if vms and bridge.slow_tunnels:
            differ = ("tunnels that are fast and lose nothing", "; ".join(bridge.slow_tunnels)[:_SHOWN])
            reason = "VMs there and here wait for each other: look at the network between the hosts"
            yield host_finding(wanted.host, "ovn.tunnel_slow", "warning", differ, reason)
        if vms and bridge.pings_refused:
            differ = ("the way to other hosts measured", "the kernel lets the agent send no pings")
            yield host_finding(wanted.host, "ovn.tunnels_unmeasured", "info", differ, _LET_PING)
        waiting = _waiting(wanted, snapshot, bridge.waiting_ports)
        if why is None and waiting:
            differ = (f"cards of {', '.join(waiting)} set up by OVN"[:_SHOWN], "ovn-controller has not set them up")
            reason = "nothing reaches them; 'vgpuctl network driver check' says whether OVN is behind"
            yield host_finding(wanted.host, "ovn.card_waits", "warning", differ, reason)


def _waiting(wanted: ExpectedHost, snapshot: HostSnapshot, ports: Collection[str]) -> list[str]:
    """VMs that run there with one of these ports."""
    running = {domain.uuid for domain in snapshot.domains if domain.state == "running"} if ports else set()
    return [
        expected.vm.full_name
        for expected in wanted.vms
        if expected.vm.ports
        and expected.vm.id in running
        and any(port_id(expected.vm.id, number) in ports for number, _ in enumerate(expected.vm.spec.networks))
    ]


def network_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each that VMs which run there are cut off from."""
    cut_off = {domain.uuid: domain.cut_off for domain in snapshot.domains if domain.state == "running"}
    for network in (network for network in wanted.networks if network.overlay is None):
        vms = [
            expected.vm.full_name
            for expected in wanted.vms
            if expected.vm.id in cut_off and network.name in expected.vm.spec.networks
            and (network.name not in snapshot.networks or network.name in cut_off[expected.vm.id])
        ]  # fmt: skip
        if vms:
            repair = Repair(kind="mend_host", automatic=False, actions=network.ensure())
            observed = "not plugged in" if network.name in snapshot.networks else "no such network is active"
            differ = (f"{', '.join(vms)} plugged in", observed)
            text = f"network {network.name}"
            yield replace(host_finding(wanted.host, "network.cut_off", "error", differ, _CUT_OFF, text), repair=repair)
