# SPDX-License-Identifier: Apache-2.0
"""What a step gets: the ports, its operation's inputs, and short ways to the host and the VM it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.core.actions.host_actions import ActionResult, AgentCleaned, FencingToken, HostAction
from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.errors import Bug, Unknown, WorldError
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.host import Host, check_is_the_machine, seen_after_restore
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.cleaning import Evidence, Method, key_of, strongest
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.cleanings import settle_cleanings
from orchestrator.operations.gpu_health import judge_gpus
from orchestrator.operations.journal import Write, attempt
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.fencing import Fencing
from orchestrator.ports.files import BundleFiles, HostKeys, ImageFiles, SeedBuilder
from orchestrator.ports.host import Configurator, Guests, HostLink
from orchestrator.ports.overlay import Northbound
from orchestrator.store.database import Store
from orchestrator.store.records import Job
from orchestrator.store.transaction import Transaction

_FOUND: Final = "found"
"""Input of an operation: what it meant to make and was there before it."""
_CLEANED: Final = "cleaned"
"""Input of an operation: how each device that it has removed was cleaned."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How patient operations are, in seconds; ``first_pause`` is doubled after each try."""

    tries: int = 5
    first_pause: float = 0.5
    guest_seen: float = 120.0
    shutdown_grace: int = 30
    gpu_trial: int = 30


@dataclass(frozen=True, kw_only=True)
class World:
    """All ports that steps use."""

    store: Store
    link: HostLink
    configurator: Configurator
    guests: Guests
    clock: Clock
    ids: Ids
    seeds: SeedBuilder
    images: ImageFiles
    bundles: BundleFiles
    keys: HostKeys
    fencing: Fencing
    northbound: Northbound | None = None
    """None: the site has no OVN."""
    limits: Limits = Limits()
    controller: str = ""
    """Name of this one of several; "": there can be no other."""


@dataclass
class _Carried:
    """What steps have read, until one of them writes; and what the step that runs has yet to write."""

    host: Host | None = None
    vm: Vm | None = None
    claim: Claim | None = None
    """Read with the host."""
    image: Image | None = None
    writes: list[Write] = field(default_factory=list)
    elsewhere: dict[str, Context] = field(default_factory=dict)
    """The same attempt on other hosts."""
    tried: set[str] = field(default_factory=set)
    """What this attempt has begun to make."""
    begun_before: bool = False
    """The step that runs was begun by an earlier attempt, which may have made what is there."""
    answer_lost: bool = False
    """It is not known whether the agent has done what it was asked last."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """One attempt at one operation. Host and VM are read once: a step that writes has them read again."""

    world: World
    operation_id: str
    subject: str
    host_name: str
    inputs: dict[str, object]
    attempt: int
    report: Callable[[str], None]
    """Progress inside a step, for people."""
    pause: Callable[[float], None]
    """Sleep so many seconds inside a step; leaves the step when the operation is cancelled or the server stops."""
    wait_for_guest: Callable[[], None]
    """Leave the step until the guest has booted, and do it again then. Returns when it has had the time it gets."""
    warnings: list[str] = field(default_factory=list)
    within: Transaction | None = None
    """Everything is written in this transaction, which is somebody else's to end."""
    _carried: _Carried = field(default_factory=_Carried)

    @classmethod
    def of(
        cls,
        world: World,
        job: Job,
        report: Callable[[str], None],
        pause: Callable[[float], None],
        wait_for_guest: Callable[[], None],
    ) -> Context:
        """The context of a job as it was taken up."""
        return cls(
            world=world,
            operation_id=job.operation.id,
            subject=job.operation.subject,
            host_name=str(job.inputs.get("target", job.host)),
            inputs=job.inputs,
            attempt=job.operation.attempt,
            report=report,
            pause=pause,
            wait_for_guest=wait_for_guest,
            warnings=list(job.operation.warnings),
        )

    @contextmanager
    def at(self, host: str) -> Iterator[Context]:
        """The same attempt at the same operation, on another host than its own. What fails there says so."""
        carried = self._carried
        if host not in carried.elsewhere:
            own = _Carried(writes=carried.writes, tried=carried.tried, begun_before=carried.begun_before)
            carried.elsewhere[host] = replace(self, host_name=host, _carried=own)
        try:
            yield carried.elsewhere[host]
        except WorldError as error:
            error.at_host = host
            raise

    def text(self, key: str) -> str:
        value = self.inputs.get(key)
        if not isinstance(value, str):
            raise Bug("operation.inputs", f"operation {self.operation_id} lacks its input {key}")
        return value

    def number(self, key: str) -> int:
        value = self.inputs.get(key)
        if not isinstance(value, int):
            raise Bug("operation.inputs", f"operation {self.operation_id} lacks its input {key}")
        return value

    def devices_before(self) -> tuple[Device, ...]:
        """The devices that the VM had before the operation gave it others."""
        value = self.inputs.get("devices")
        if not isinstance(value, list):
            raise Bug("operation.inputs", f"operation {self.operation_id} lacks its input devices")
        return tuple(Device.from_fields(fields) for fields in value)

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """A writing transaction of this attempt, refused once another one has begun."""
        if self.within is not None:
            yield self.within
            return
        try:
            with attempt(self.world.store, self.operation_id, self.attempt) as tx:
                yield tx
        finally:
            self.read_again()

    def write_at_end(self, write: Write) -> None:
        """To be written in the commit that ends the step; left out when the step fails."""
        self._carried.writes.append(write)

    def take_writes(self) -> tuple[Write, ...]:
        """What the step has left to be written; it is forgotten here."""
        writes = tuple(self._carried.writes)
        self._carried.writes.clear()
        return writes

    def read_again(self) -> None:
        """Whoever asks for the host or the VM next gets what the database says by then."""
        self._carried.host = self._carried.vm = self._carried.image = None
        for context in self._carried.elsewhere.values():
            context.read_again()

    def start_over(self) -> None:
        """A try has failed: nothing of it is written, nothing that it has read is believed."""
        self.take_writes()
        self.read_again()

    def host(self) -> Host:
        """:raises NotFound: ``host.unknown``"""
        carried = self._carried
        if carried.host is None:
            with self.world.store.read() as tx:
                carried.host, carried.vm = tx.hosts.get(self.host_name), tx.vms.find_id(self.subject)
                carried.claim = tx.claims.find(self.subject)
        return carried.host

    def vm(self) -> Vm | None:
        """The VM this operation is about; None when its row is gone."""
        carried = self._carried
        if carried.vm is None:
            with self.world.store.read() as tx:
                carried.vm = tx.vms.find_id(self.subject)
        return carried.vm

    def known_vm(self) -> Vm:
        """:raises Bug: ``vm.row_missing``"""
        vm = self.vm()
        if vm is None:
            raise Bug("vm.row_missing", f"the VM of operation {self.operation_id} is not in the database")
        return vm

    def claim(self) -> Claim | None:
        """What the VM holds. :raises NotFound: ``host.unknown``"""
        self.host()
        return self._carried.claim

    def image(self) -> Image:
        """What the VM's disk is based on. :raises NotFound: ``image.unknown``"""
        carried = self._carried
        if carried.image is None:
            vm = self.known_vm()
            with self.world.store.read() as tx:
                carried.image = tx.images.get(vm.spec.image)
        return carried.image

    def token(self, host: Host) -> FencingToken:
        """A host that nobody has looked at since a restore is asked first which epochs it has seen.

        :raises Conflict: ``host.quarantined``"""
        check_is_the_machine(host)
        if host.restored == "unseen":
            host = self._seen_after_restore(host)
        return FencingToken(
            site=self.world.store.site, epoch=host.epoch, operation=self.operation_id, attempt=self.attempt
        )

    def _seen_after_restore(self, host: Host) -> Host:
        snapshot = self.world.link.observe(host)
        with self.begin() as tx:
            seen = seen_after_restore(tx.hosts.get(host.name), snapshot)
            tx.hosts.update(seen)
        return seen

    def perform(self, action: HostAction) -> ActionResult:
        """Do it on the operation's host."""
        host = self.host()
        try:
            return self.world.link.perform(host, action, self.token(host))
        except Unknown:
            self._carried.answer_lost = True
            raise

    def observe_after_lost_answer(self) -> None:
        """While the host cannot be read, doing it again would be guessing."""
        if self._carried.answer_lost:
            self.observe()
            self._carried.answer_lost = False
        for context in self._carried.elsewhere.values():
            context.observe_after_lost_answer()

    def is_first(self, thing: str) -> bool:
        """Whether nothing of this operation can have made ``thing``; asked once."""
        carried = self._carried
        first = thing not in carried.tried and not carried.begun_before
        carried.tried.add(thing)
        return first

    def make(self, thing: str, *actions: HostAction) -> ActionResult:
        """Do them in order. What was all there before the operation is not taken back by it."""
        first = self.is_first(thing)
        results = [self.perform(action) for action in actions]
        changed = any(result.changed for result in results)
        if first and not changed:
            self.note_found(thing)
        return ActionResult(changed=changed, message=results[-1].message)

    def made(self, thing: str) -> bool:
        """Whether it may be this operation that has made it."""
        return thing not in self._found()

    def note_found(self, thing: str) -> None:
        """It was there before. Written down at once: a later attempt finds all as if it had made it itself."""
        self.inputs[_FOUND] = [*self._found(), thing]
        with self.begin() as tx:
            tx.operations.put_inputs(self.operation_id, self.inputs)

    def _found(self) -> list[str]:
        names = self.inputs.get(_FOUND)
        return [str(name) for name in names] if isinstance(names, list) else []

    def note_cleaned(self, device: Device, answers: Sequence[AgentCleaned]) -> None:
        """How a device that the operation has removed was cleaned, or that nothing of it was left when it was removed
        once more, or None: its host cannot say; written in the commit that ends the step. ``answers``: none of one
        that stays."""
        if not answers:
            return
        cleaned, key = self._cleaned(), key_of(self.host_name, device)
        answer = strongest(answers)
        if not (answer == "absent" and cleaned.get(key)):
            cleaned[key] = answer or None
        self.inputs[_CLEANED] = cleaned
        self.write_at_end(lambda tx: tx.operations.put_inputs(self.operation_id, self.inputs))
        if answer != "absent":
            self._note_of_claim(device, answer or None)

    def note_made(self, device: Device) -> None:
        """It may be there from now on."""
        self._cleaned().pop(key_of(self.host_name, device), None)
        if self.inputs.get("previous_state") != "creating":  # else the claim is a new one
            self._note_of_claim(device, None)

    def _note_of_claim(self, device: Device, method: Method | None) -> None:
        """Of a place that is held for a VM nothing: whose operation ends, ends its claim."""
        vm, host = self.vm(), self.host_name
        own = () if vm is None or vm.host != host else vm.devices
        if device in own:
            number = own.index(device)
            self.write_at_end(lambda tx: tx.cleanings.note(self.subject, number, method))

    def evidence(self, *, undone: bool = False) -> Evidence:
        """What is known of the VM's devices where its claim ends. ``undone``: all that the operation has begun since it
        was claimed is taken back."""
        return Evidence(
            at=self.world.clock.now(), operation=self.operation_id, vm=self.subject, methods=self._cleaned(),
            otherwise="not_made" if undone else None,
        )  # fmt: skip

    def no_evidence(self) -> Evidence:
        """Of an operation that was abandoned: a person has cleaned up, and nobody has seen it."""
        return Evidence(at=self.world.clock.now(), operation=self.operation_id, vm=self.subject)

    def _cleaned(self) -> dict[str, Method | None]:
        cleaned = self.inputs.get(_CLEANED)
        return cleaned if isinstance(cleaned, dict) else {}

    def begins(self, *, again: bool) -> None:
        """The next step. ``again``: an earlier attempt had begun it."""
        self._carried.begun_before = again
        self._carried.elsewhere.clear()

    def observe_domain(self) -> DomainSnapshot | None:
        """Look at the VM's domain alone; nothing is remembered."""
        host = self.host()
        check_is_the_machine(host)
        return self.world.link.observe_domain(host, self.subject)

    def things_left(self) -> tuple[str, ...]:
        """What the host shows of the VM, for people. Where placement's picture of the host shows devices of it, a
        whole look takes them out in the commit that ends the step."""
        with self.world.store.read() as tx:
            shown = tx.observations.shows(self.host_name, self.subject)
        if shown:
            return things_of(self.observe_for_the_end(), self.subject)
        host = self.host()
        check_is_the_machine(host)
        return self.world.link.things_of(host, self.subject)

    def observe(self) -> HostSnapshot:
        """Look at the host and remember what was seen."""
        snapshot, keep = self._observed()
        with self.world.store.begin() as tx:
            keep(tx)
        return snapshot

    def observe_for_the_end(self) -> HostSnapshot:
        """Look at the host; what was seen is remembered in the commit that ends the step."""
        snapshot, keep = self._observed()
        self.write_at_end(keep)
        return snapshot

    def _observed(self) -> tuple[HostSnapshot, Write]:
        host, began = self.host(), self.world.clock.now()
        with self.world.store.read() as tx:
            turn = tx.operations.turn()
        check_is_the_machine(host)
        snapshot = self.world.link.observe(host)
        check_is_the_machine(host, snapshot)

        def keep(tx: Transaction) -> None:
            if tx.hosts.put_snapshot(host.name, snapshot, turn):
                now = tx.time.no_earlier(self.world.clock.now())
                judge_gpus(tx, tx.hosts.get(host.name), snapshot, now)
                settle_cleanings(tx, host.name, snapshot, turn, now)
                tx.power.learn(host.name, snapshot.gpus)
            tx.hosts.observed(host.name, began)

        return snapshot, keep
