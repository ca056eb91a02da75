# SPDX-License-Identifier: Apache-2.0
"""Define, start, stop and undefine domains; list what is there.

A VM's id is its domain's UUID. The ledger says which domains are ours; others are shown and never changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt

from orchestrator.agent.ledger import Ledger, Ownership
from orchestrator.agent.libvirt.addresses import LEARNED, addresses_of, has_sent
from orchestrator.agent.libvirt.connection import Libvirt, is_absent, is_of_one_domain
from orchestrator.agent.libvirt.domain_devices import DomainText, parts_of, read_domain_xml
from orchestrator.agent.pinned_cpus import PinnedCpus
from orchestrator.agent.timing import Timing
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, Retryable, Unknown
from orchestrator.core.hosts.snapshot import DomainSnapshot, DomainState

_STATES: dict[int, DomainState] = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "running",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "paused",
    libvirt.VIR_DOMAIN_SHUTOFF: "shut_off",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
}

_UNDEFINE = libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
ADOPTED = "adopted"
"""Detail in the ledger of a domain that somebody else has defined; ours have the digest of their definition."""
_POLL_SECONDS = 0.5
_START_SECONDS = 300.0


def domain_key(vm: str) -> str:
    """Name of a domain in the ledger."""
    return f"domain:{vm}"


def _of_its_state(xml: str, *, keep: bool) -> int:
    """Flags for UEFI variables and TPM. Without one libvirt keeps the first and removes the second.

    :raises Fatal: ``vm.undefine_failed``: this libvirt cannot keep a TPM"""
    nvram = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM if keep else libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    flags: int = nvram if "<nvram" in xml else 0
    if "<tpm" not in xml or not keep:
        return flags
    keep_tpm: int | None = getattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM", None)  # since 8.9.0
    if keep_tpm is None:
        raise Fatal(
            "vm.undefine_failed",
            "this host's libvirt would wipe the TPM of an adopted VM with its definition",
            hint="upgrade libvirt to 8.9 or newer on the host",
        )
    return flags | keep_tpm


def _digest(xml: str) -> str:
    return hashlib.sha256(xml.encode()).hexdigest()


class Domains:
    def __init__(
        self,
        connection: Libvirt,
        ledger: Ledger,
        timing: Timing,
        learned: Path = LEARNED,
        is_plugged: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """``is_plugged``: whether an interface of the host is a port of something."""
        self._libvirt = connection
        self._learned = learned
        self._ledger = ledger
        self.timing = timing
        self._cpus = PinnedCpus(ledger)
        self._is_plugged = is_plugged

    def define(self, vm: str, xml: str, check: Callable[[], None]) -> ActionResult:
        """``check``: refuses what the definition takes and may not.

        :raises Conflict: ``vm.foreign_domain``, ``vm.adopted``
        :raises Fatal: ``vm.definition_refused``"""
        is_defined = self._libvirt.call(lambda connection: _lookup(connection, vm) is not None)
        owner = self._ledger.owner(domain_key(vm))
        if is_defined and owner is None:
            raise _foreign(vm)
        _check_not_adopted(owner)
        check()
        if is_defined and owner is not None and owner.detail == _digest(xml) and self._still_takes(vm, xml):
            return ActionResult(changed=False)
        self._ledger.claim(domain_key(vm), vm)  # the digest follows when libvirt has taken the definition
        try:
            self._libvirt.call(
                lambda connection: _define(connection, vm, xml),
                code="vm.definition_refused",
                message="libvirt refused the VM's definition",
                hint="the host's libvirt or QEMU may be too old for it",
            )
        except (Fatal, Retryable):
            if not is_defined:
                self._ledger.release(domain_key(vm))
            raise
        self._ledger.claim(domain_key(vm), vm, detail=_digest(xml))
        return ActionResult(changed=True)

    def definition_changes(self, vm: str) -> None:
        """Otherwise than by :meth:`define`, which then writes it whole. :raises Conflict: ``vm.adopted``"""
        self.check_ours(vm)
        _check_not_adopted(self._ledger.owner(domain_key(vm)))
        self._ledger.claim(domain_key(vm), vm)

    def _still_takes(self, vm: str, xml: str) -> bool:
        """What it was defined with: nobody changed that on the host since."""
        return parts_of(self.definition(vm)) == parts_of(xml)

    def adopt(self, vm: str, devices: tuple[str, ...], check: Callable[[str], None]) -> ActionResult:
        """Write down that the domain is ours now; it is not changed. ``devices`` are the host devices it has; ``check``
        refuses what its definition (XML) takes and may not.

        :raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.definition_differs``, ``host.owned_by_other``"""

        def definition(connection: Any) -> str:
            domain = _lookup(connection, vm)
            if domain is None:
                raise NotFound("vm.not_found", "the domain is not defined on this host", details=vm)
            return _definition(domain)

        xml = self._libvirt.call(definition)
        domain_devices = read_domain_xml(xml).devices
        if domain_devices != devices:
            shown = ", ".join(domain_devices) or "none"
            raise Conflict("vm.definition_differs", "the domain has other host devices than were seen", details=shown)
        owner = self._ledger.owner(domain_key(vm))
        if owner is not None and (owner.vm, owner.detail) != (vm, ADOPTED):
            raise Conflict("host.owned_by_other", "the domain is ours already", details=f"owner {owner.vm}")
        check(xml)
        self._ledger.claim(domain_key(vm), vm, detail=ADOPTED)
        return ActionResult(changed=owner is None)

    def settle(self, vm: str, *, adopted: bool) -> None:
        """Write down again that the domain is ours, if it is there; as what it was defined is not known any more."""
        if self._libvirt.call(lambda connection: _lookup(connection, vm) is not None):
            self._ledger.claim(domain_key(vm), vm, detail=ADOPTED if adopted else "")
            if not adopted and self.is_active(vm):
                self._cpus.take(vm, read_domain_xml(self.on_own_domain(vm, _definition)).affinity)

    def release(self, vm: str) -> bool:
        """Forget an adopted domain; whether it was one.

        :raises Conflict: ``host.owned_by_other``"""
        owner = self._ledger.owner(domain_key(vm))
        if owner is not None and owner.detail != ADOPTED:
            raise Conflict("host.owned_by_other", "the domain was made by us", details=vm)
        self._ledger.release(domain_key(vm))
        return owner is not None

    def undefine(self, vm: str) -> ActionResult:
        """The definition; of an adopted domain UEFI variables and TPM stay, as its disks do.

        :raises Conflict: ``vm.foreign_domain``, ``vm.running``; :raises Fatal: ``vm.undefine_failed``"""
        owner = self._ledger.owner(domain_key(vm))
        adopted = owner is not None and owner.detail == ADOPTED

        def undefine(connection: Any) -> bool:
            domain = _lookup(connection, vm)
            if domain is None:
                return False
            self.check_ours(vm)
            if domain.isActive():
                raise Conflict("vm.running", "the VM is running", hint="stop it first")
            domain.undefineFlags(_UNDEFINE | _of_its_state(domain.XMLDesc(), keep=adopted))
            return True

        changed = self._libvirt.call(undefine, code="vm.undefine_failed", message="libvirt did not remove the VM")
        self._ledger.release(domain_key(vm))
        return ActionResult(changed=changed)

    def start(self, vm: str, check: Callable[[str, bool], None]) -> ActionResult:
        """Start it, or let it go on, and see it running. ``check``: refuses what the definition (its XML, and whether
        somebody else wrote it) takes and may not.

        :raises NotFound: ``vm.not_found``
        :raises Fatal: ``vm.start_failed``; QEMU's words are in the details
        """
        if not self.is_active(vm):
            owner = self._ledger.owner(domain_key(vm))
            adopted, xml = owner is not None and owner.detail == ADOPTED, self.on_own_domain(vm, _definition)
            check(xml, adopted)
            if not adopted:
                self._cpus.take(vm, read_domain_xml(xml).affinity)

        def start(domain: Any) -> bool:
            is_active = bool(domain.isActive())
            if is_active and _state(domain) != "paused":  # which it is from another host, or while it is being started
                return False
            try:
                domain.resume() if is_active else domain.create()
            except libvirt.libvirtError:
                if _state(domain) != "running":  # else the earlier one has ended well while libvirt let this one wait
                    raise
            return True

        changed = self.on_own_domain(
            vm, start, code="vm.start_failed", message="the VM did not start", limit_s=_START_SECONDS,
            hint="the details hold what QEMU said",
        )  # fmt: skip
        state = self.on_own_domain(vm, _state)
        if state not in ("running", "paused"):
            raise Unknown("vm.start_failed", f"the VM was started and is {state} now", hint="look at its console")
        return ActionResult(changed=changed)

    def stop(self, vm: str, grace_seconds: int) -> ActionResult:
        """Ask, wait, then power off. A domain that is not there is stopped."""
        if not self.is_active(vm):
            self._cpus.give_back(vm)
            return ActionResult(changed=False)
        self.check_ours(vm)
        if grace_seconds > 0 and self._shuts_down(vm, grace_seconds):
            self._cpus.give_back(vm)
            return ActionResult(changed=True, message="the guest shut down")

        def power_off(connection: Any) -> None:
            domain = _lookup(connection, vm)
            if domain is not None and domain.isActive():
                domain.destroy()

        self._libvirt.call(power_off, code="vm.stop_failed", message="the VM could not be powered off")
        self._cpus.give_back(vm)
        return ActionResult(changed=True, message="powered off")

    def addresses(self, vm: str) -> tuple[str, ...]:
        """IP addresses of our VM, as libvirt's DHCP server leased them or its filters learned them.

        :raises NotFound: ``vm.not_found``"""

        def addresses(domain: Any) -> tuple[str, ...]:
            return addresses_of(domain, read_domain_xml(domain.XMLDesc()).interfaces, self._learned)

        return tuple(self.on_own_domain(vm, addresses))

    def is_ours(self, vm: str) -> bool:
        """Whether the ledger knows it."""
        return self._ledger.owner(domain_key(vm)) is not None

    def name_of(self, vm: str) -> str:
        """:raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.foreign_domain``"""
        return str(self.on_own_domain(vm, lambda domain: domain.name()))

    def definition(self, vm: str) -> str:
        """What it is when it is started (XML). :raises NotFound: ``vm.not_found``
        :raises Conflict: ``vm.foreign_domain``"""
        return str(self.on_own_domain(vm, lambda domain: domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))

    def is_active(self, vm: str) -> bool:
        def active(connection: Any) -> bool:
            domain = _lookup(connection, vm)
            return domain is not None and bool(domain.isActive())

        return self._libvirt.call(active)

    def snapshots(self, problem: Callable[[str], None]) -> tuple[DomainSnapshot, ...]:
        """All domains of the host, in the order of their names. ``problem`` is told of each that cannot be read."""

        def read(domain: Any) -> DomainSnapshot | None:
            try:
                return self._snapshot(domain)
            except (InvalidInput, ValueError, libvirt.libvirtError) as error:
                if not is_of_one_domain(error):
                    raise
                problem(f"domain {domain.name()} cannot be read: {error}")
            return self._unread(domain)

        domains = self._libvirt.call(lambda connection: [read(domain) for domain in connection.listAllDomains()])
        return tuple(sorted((domain for domain in domains if domain is not None), key=lambda domain: domain.name))

    def find(self, uuid: str) -> DomainSnapshot | None:
        """One domain of the host; None when there is none with this UUID."""

        def find(connection: Any) -> DomainSnapshot | None:
            domain = _lookup(connection, uuid)
            return None if domain is None else self._snapshot(domain)

        return self._libvirt.call(find)

    def _unread(self, domain: Any) -> DomainSnapshot:
        """That it is there; its devices are not known."""
        uuid = domain.UUIDString().lower()
        owner = self._ledger.owner(domain_key(uuid))
        vm = None if owner is None else owner.vm
        return DomainSnapshot(uuid=uuid, name=domain.name(), state=_state(domain), owner=vm, devices=())

    def _snapshot(self, domain: Any) -> DomainSnapshot | None:
        try:
            text, bare = read_domain_xml(domain.XMLDesc()), self._unread(domain)
            foreign = bare.owner is None
            return replace(
                bare, managed_by=text.managed_by if foreign else "", unsafe=_unsafe(domain, text) if foreign else (),
                transient=foreign and not domain.isPersistent(), devices=text.devices, vcpus=text.vcpus,
                free_ports=text.free_ports if bare.active else None,
                addresses=(
                    *addresses_of(domain, text.interfaces, self._learned),
                    *(() if foreign or not has_sent(domain, text.interfaces) else text.port_addresses),
                ),
                memory_mib=text.memory_mib, affinity=text.affinity, memory_words=text.memory_words,
                disk_bytes=_disk_bytes(domain, text.disks) if foreign else None,
                cut_off=tuple(plug.network for plug in text.plugs if not self._is_plugged(plug.interface)),
            )  # fmt: skip
        except libvirt.libvirtError as error:
            if is_absent(error):
                return None  # undefined since the list was made
            raise

    def _shuts_down(self, vm: str, grace_seconds: int) -> bool:
        def ask(connection: Any) -> None:
            domain = _lookup(connection, vm)
            if domain is not None and domain.isActive():
                domain.shutdown()

        self._libvirt.call(ask, code="vm.stop_failed", message="the VM could not be asked to shut down")
        deadline = self.timing.monotonic() + grace_seconds
        while self.timing.monotonic() < deadline:
            if not self.is_active(vm):
                return True
            self.timing.sleep(_POLL_SECONDS)
        return False

    def check_ours(self, vm: str) -> None:
        """:raises Conflict: ``vm.foreign_domain``"""
        if self._ledger.owner(domain_key(vm)) is None:
            raise _foreign(vm)

    def on_own_domain(self, vm: str, function: Callable[[Any], Any], **call: Any) -> Any:
        """Of libvirt's domain. :raises NotFound: ``vm.not_found``; :raises Conflict: ``vm.foreign_domain``"""
        self.check_ours(vm)

        def on_domain(connection: Any) -> Any:
            domain = _lookup(connection, vm)
            if domain is None:
                raise NotFound("vm.not_found", "the VM is not defined on this host", details=vm)
            return function(domain)

        return self._libvirt.call(on_domain, **call)


def _check_not_adopted(owner: Ownership | None) -> None:
    """:raises Conflict: ``vm.adopted``"""
    if owner is not None and owner.detail == ADOPTED:
        raise Conflict("vm.adopted", "an adopted VM keeps the definition it came with", details=owner.vm)


def _foreign(vm: str) -> Conflict:
    return Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours", details=vm)


def _lookup(connection: Any, vm: str) -> Any:
    try:
        return connection.lookupByUUIDString(vm)
    except libvirt.libvirtError as error:
        if is_absent(error):
            return None
        raise


def _define(connection: Any, vm: str, xml: str) -> None:
    """libvirt takes no definition of another name for a domain that is there: it is renamed first."""
    defined, name = _lookup(connection, vm), read_domain_xml(xml).name
    if defined is not None and defined.name() != name:
        defined.rename(name)
    connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)


def _definition(domain: Any) -> str:
    return str(domain.XMLDesc())


def _state(domain: Any) -> DomainState:
    return _STATES.get(domain.state()[0], "other")


def _unsafe(domain: Any, now: DomainText) -> tuple[str, ...]:
    """Of one that runs also what it will have when it is started again."""
    later = read_domain_xml(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    return tuple(dict.fromkeys((*now.unsafe, *later.unsafe)))


def _disk_bytes(domain: Any, targets: tuple[str, ...]) -> int | None:
    """virDomainBlockInfo: what the guest sees, what is allocated, what the file takes. Of each disk the first."""
    try:
        return sum(int(domain.blockInfo(target)[0]) for target in targets)
    except libvirt.libvirtError:
        return None  # a disk that is not there now, or on storage that does not answer
