# SPDX-License-Identifier: Apache-2.0
"""Hosts, their GPUs and what was last seen on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Text, and_, bindparam, cast, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from orchestrator.core.attachments.host_facts import DISK_STEP, disk_of, facts_of
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.cpus import cpus_text
from orchestrator.core.hosts.host import Host, HostState
from orchestrator.core.hosts.mig_layout import CUT, MigLayout
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.labels import Labels
from orchestrator.core.names import near
from orchestrator.store.events import Events
from orchestrator.store.pools import pools_observed
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import host_of, host_values, layout_values
from orchestrator.store.snapshots import JsonText, facts_text, snapshot_from_text, snapshot_text
from orchestrator.store.statements import AnyRow, InClause, Precompiled, Statements
from orchestrator.store.tables import gpu_cuts, gpus, hosts, observations, slot_claims, snapshots, vms
from orchestrator.store.usage import Usage

log = logging.getLogger(__name__)

_Parsed = tuple[str, HostSnapshot]
"""Digest of a snapshot without what changes by itself, and the snapshot."""
_MAX_PARSED: Final = 256


class ParsedSnapshots:
    """Of the hosts that were asked for last: reading a snapshot's text costs more than all queries together."""

    def __init__(self) -> None:
        self._kept: dict[str, _Parsed] = {}
        self.whole: dict[str, str] = {}
        """Digest of each host's document that this process has found stored as it should be."""
        self.host_rows: dict[str, tuple[tuple[Any, ...], Host]] = {}
        """What the rows of all hosts were when they were read the last time, and what was made of them."""

    def get(self, host: str, digest: str) -> HostSnapshot | None:
        known = self._kept.get(host)
        return known[1] if known is not None and known[0] == digest else None

    def keep(self, host: str, digest: str, snapshot: HostSnapshot) -> None:
        if len(self._kept) >= _MAX_PARSED:
            self._kept.clear()
        self._kept[host] = (digest, snapshot)


# Put together once, as that takes as long as asking.
_BY_NAME: Final = Precompiled(select(hosts).where(hosts.c.name == bindparam("host")))
_SILENT_STATES: Final[frozenset[HostState]] = frozenset({"unreachable", "quarantined", "forgotten"})
_SILENT: Final = select(hosts.c.name, hosts.c.last_seen_at).where(hosts.c.state.in_(sorted(_SILENT_STATES)))
_ITS_VMS: Final = Precompiled(
    select(vms.c.id, vms.c.tenant, vms.c.name, vms.c.state).where(vms.c.host == bindparam("host"))
)
_NAMES: Final = Precompiled(select(hosts.c.name))
_LABELS: Final = InClause(lambda names: select(hosts.c.name, hosts.c.labels).where(hosts.c.name.in_(names)))
_AT_ITS_ADDRESS: Final = and_(hosts.c.address == bindparam("address"), hosts.c.port == bindparam("port"))
_IN_THE_WAY: Final = select(hosts.c.name).where(or_(hosts.c.name == bindparam("name"), _AT_ITS_ADDRESS))
_CHANGE: Final = Precompiled(update(hosts).where(hosts.c.name == bindparam("its_name")))
_LAYOUTS: Final = select(gpus.c.address, gpus.c.mig_layout, gpus.c.health).order_by(gpus.c.address)
_ITS_GPUS: Final = Precompiled(_LAYOUTS.where(gpus.c.host == bindparam("host")))
_ALL_GPUS: Final = _LAYOUTS.add_columns(gpus.c.host)
_COUNTS: Final = Precompiled(
    select(hosts.c.state, hosts.c.cordoned, func.count().label("stored")).group_by(hosts.c.state, hosts.c.cordoned)
)
_ENABLED: Final = _LAYOUTS.where(gpus.c.host == bindparam("host"), gpus.c.functions_by_us)
_MARK: Final = update(gpus).where(gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address"))
_MODEL: Final = Precompiled(
    _MARK.where(or_(gpus.c.model.is_(None), gpus.c.model != bindparam("its_model"))).values(
        model=bindparam("its_model")
    )
)
_KEPT: Final = select(gpu_cuts.c.cut).where(
    gpu_cuts.c.host == bindparam("host"), gpu_cuts.c.gpu == bindparam("gpu"), gpu_cuts.c.cut == CUT
)
_UNKEEP: Final = delete(gpu_cuts).where(
    gpu_cuts.c.host == bindparam("its_host"), gpu_cuts.c.gpu == bindparam("its_gpu"), gpu_cuts.c.cut == CUT
)
_PLACEMENT: Final = Precompiled(
    select(
        hosts.c.state,
        hosts.c.cordoned,
        hosts.c.vcpu_overcommit,
        hosts.c.memory_overcommit,
        hosts.c.allow_unconfined,
        hosts.c.labels,
        hosts.c.rdma_nics,
    ).where(hosts.c.name == bindparam("host"))
)
_CLAIMED: Final = select(slot_claims.c.vm).where(slot_claims.c.host == bindparam("host")).limit(1)
_OBSERVATION: Final = Precompiled(select(observations).where(observations.c.host == bindparam("host")))
_DIGEST: Final = select(observations.c.host, observations.c.digest)
_DIGESTS: Final = Precompiled(_DIGEST)
_DIGESTS_OF: Final = InClause(lambda names: _DIGEST.where(observations.c.host.in_(names)))
_TURN: Final = Precompiled(select(observations.c.turn).where(observations.c.host == bindparam("host")))
_CHANGE_OBSERVATION: Final = Precompiled(update(observations).where(observations.c.host == bindparam("its_host")))
_DOCUMENT: Final = Precompiled(select(cast(snapshots.c.document, Text)).where(snapshots.c.host == bindparam("host")))
_HAS_DOCUMENT: Final = Precompiled(
    select(snapshots.c.host).where(
        snapshots.c.host == bindparam("host"), cast(snapshots.c.document, Text) == bindparam("text", type_=Text)
    )
)
PUT_DOCUMENT: Final = insert(snapshots).values(document=bindparam("document", type_=JsonText()))
_PUT_OBSERVATION: Final = insert(observations)
_NO_OBSERVATION: Final = delete(observations).where(observations.c.host == bindparam("its_host"))
_DROP_SNAPSHOT: Final = delete(snapshots).where(snapshots.c.host == bindparam("its_host"))


class Hosts:
    """Hosts that were added, their GPUs and the last snapshot of each."""

    def __init__(self, connection: Statements, usage: Usage, parsed: ParsedSnapshots, events: Events) -> None:
        self._db = connection
        self._usage = usage
        self._parsed = parsed
        self._events = events

    def add(self, host: Host) -> None:
        """:raises Conflict: ``host.exists``, ``host.address_taken``"""
        values = host_values(host)
        names = set(
            self._db.execute(_IN_THE_WAY, {name: values[name] for name in ("name", "address", "port")}).scalars()
        )
        if host.name in names:
            raise Conflict(
                "host.exists",
                f"there is already a host {host.name}",
                hint=f"'vgpuctl host show {host.name}' shows it; choose another name for another machine",
            )
        if names:
            raise Conflict(
                "host.address_taken",
                f"host {names.pop()} has that address already",
                hint="'vgpuctl host list' shows addresses",
            )
        self._db.execute(insert(hosts), values)
        self._usage.begin(host.name)
        self.set_gpus(host.name, host.managed_gpus)
        self._events.note("host", host.name, "added", host=host.name, state=host.state)

    def get(self, name: str) -> Host:
        """:raises NotFound: ``host.unknown``"""
        row = self._db.execute(_BY_NAME, {"host": name}).one_or_none()
        if row is None:
            names = self._db.execute(select(hosts.c.name)).scalars()
            raise NotFound(
                "host.unknown", f"no host is called {name[:63]!a}", hint=near(name, names, "vgpuctl host list")
            )
        return host_of(row, [tuple(gpu) for gpu in self._db.execute(_ITS_GPUS, {"host": name})])

    def list(self, after: str | None = None, most: int | None = None) -> tuple[Host, ...]:
        """By name: ``most`` of those behind ``after``."""
        query = select(hosts).order_by(hosts.c.name).limit(most)
        rows = self._db.execute(query if after is None else query.where(hosts.c.name > after)).all()
        managed: dict[str, list[tuple[str, Any, Any]]] = {row.name: [] for row in rows}
        all_gpus = _ALL_GPUS if most is None else _ALL_GPUS.where(gpus.c.host.in_(managed))
        for address, layout, health, host in self._db.execute(all_gpus):
            managed[host].append((address, layout, health))
        return tuple(host_of(row, managed[row.name]) for row in rows)

    def counts(self) -> dict[tuple[HostState, bool], int]:
        """How many there are, by state and whether they are cordoned."""
        rows = self._db.execute(_COUNTS)
        return {(row.state, bool(row.cordoned)): row.stored for row in rows}

    def names(self) -> tuple[str, ...]:
        """Of all."""
        return tuple(self._db.execute(_NAMES).scalars())

    def labels(self, names: Sequence[str]) -> dict[str, Labels]:
        """Of these hosts, of which there is one."""
        rows = self._db.execute(*_LABELS(names))
        return {row.name: tuple(sorted(row.labels.items())) for row in rows}

    def addresses(self) -> tuple[str, ...]:
        return tuple(self._db.execute(select(hosts.c.address)).scalars())

    def silent(self) -> dict[str, float | None]:
        """Those that do not answer, or may not be believed: when they last were seen."""
        return {row.name: row.last_seen_at for row in self._db.execute(_SILENT)}

    def update(self, host: Host) -> None:
        """Everything but the list of managed GPUs, their layouts, and the CPUs that are kept. What findings depend on
        (its labels, whether it may be unconfined) has it compared anew."""
        overcommit = (host.vcpu_overcommit, host.memory_overcommit)
        values = host_values(host)
        seen = (host.state, host.cordoned, *overcommit, host.allow_unconfined, values["labels"], values["rdma_nics"])
        before = self._db.execute(_PLACEMENT, {"host": host.name}).one_or_none()
        if before != seen:
            self._usage.touch(host.name)
            self._db.execute(_CHANGE_OBSERVATION, {"its_host": host.name, "judged": None})
        self._note_changes(host, before, changed=before is not None and before[2:] != seen[2:])
        del values["pinnable_cpus"]
        self._db.execute(_CHANGE, {"its_name": host.name, **values})

    def _note_changes(self, host: Host, before: AnyRow | None, *, changed: bool) -> None:
        """Of its VMs, too: tenants are not told of hosts."""
        its = {"host": host.name, "state": host.state}
        if before is not None and before.state != host.state:
            self._events.note("host", host.name, "state", **its)
            if (host.state in _SILENT_STATES) != (before.state in _SILENT_STATES):
                change = "unseen" if host.state in _SILENT_STATES else "seen"
                for vm in self._db.execute(_ITS_VMS, {"host": host.name}):
                    about = {"host": host.name, "subject": vm.id, "state": vm.state}
                    self._events.note("vm", vm.name, change, tenant=vm.tenant, **about)
        if before is not None and before.cordoned != host.cordoned:
            self._events.note("host", host.name, "cordoned" if host.cordoned else "uncordoned", **its)
        if changed:
            self._events.note("host", host.name, "changed", **its)

    def keep_cpus(self, name: str, cpus: Sequence[int]) -> None:
        """For VMs that have theirs alone. Claims on the host wait until the end of the transaction.

        :raises Conflict: ``host.has_vms``: VMs have a place there, and run where they were told to"""
        self._usage.begin(name)
        if self._db.execute(_CLAIMED, {"host": name}).first() is not None:
            raise Conflict(
                "host.has_vms",
                f"VMs have a place on host {name}, on CPUs as they are divided now",
                hint=f"'vgpuctl host cordon {name}', and delete its VMs or wait until they are gone",
            )
        self._db.execute(_CHANGE, {"its_name": name, "pinnable_cpus": cpus_text(cpus) or None})

    def observed(self, name: str, at: float) -> None:
        """When the last observation that it answered began; nothing else of it. Gone already is fine."""
        self._db.execute(_CHANGE, {"its_name": name, "last_seen_at": at})

    def set_gpus(self, name: str, addresses: Sequence[str]) -> None:
        """The whole list; GPUs that stay keep what is known about them."""
        self._usage.touch(name)
        known = set(self._gpus_of(name))
        gone = known - set(addresses)
        if gone:
            self._db.execute(delete(gpus).where(gpus.c.host == name, gpus.c.address.in_(gone)))
        new = [
            {"host": name, "address": address, "functions_by_us": False}
            for address in addresses
            if address not in known
        ]
        if new:
            self._db.execute(insert(gpus), new)

    def mark_enabled(self, name: str, gpu: str, *, by_us: bool) -> None:
        """Remember that it was us who switched a GPU's virtual functions on."""
        self._db.execute(_MARK, {"its_host": name, "its_address": gpu, "functions_by_us": by_us})

    def enabled_by_us(self, name: str) -> tuple[str, ...]:
        return tuple(self._db.execute(_ENABLED, {"host": name}).scalars())

    def keep_layout(self, name: str, layout: MigLayout) -> None:
        """In place of the one that the GPU has. :raises ClaimLost: VMs have a claim on it, or it is not managed"""
        self._usage.touch(name)
        cut = {"host": name, "gpu": layout.gpu, "cut": CUT}
        if self._db.execute(_KEPT, {"host": name, "gpu": layout.gpu}).one_or_none() is None:
            try:
                self._db.execute(insert(gpu_cuts), cut)
            except IntegrityError as error:
                raise ClaimLost(f"{layout.gpu} on {name}: {error.orig}") from error
        self._db.execute(_MARK, {"its_host": name, "its_address": layout.gpu, "mig_layout": layout_values(layout)})

    def drop_layout(self, name: str, gpu: str) -> None:
        """VMs may have the GPU again. It has none already is fine."""
        self._usage.touch(name)
        self._db.execute(_MARK, {"its_host": name, "its_address": gpu, "mig_layout": None})
        self._db.execute(_UNKEEP, {"its_host": name, "its_gpu": gpu})

    def remove(self, name: str) -> None:
        """With its snapshot, GPUs and their layouts. Gone already is fine."""
        self._usage.touch(name)
        self._db.execute(delete(gpu_cuts).where(gpu_cuts.c.host == name, gpu_cuts.c.cut == CUT))
        if self._db.execute(delete(hosts).where(hosts.c.name == name)).rowcount:
            self._events.note("host", name, "removed", host=name)

    def put_snapshot(self, name: str, snapshot: HostSnapshot, turn: int) -> bool:
        """``turn``: the newest when the observation began. One that began earlier than the stored one is old: False,
        as is one of a host that is gone.

        One that found what the last one did writes a small row and tells placement nothing."""
        stored = self._db.execute(_OBSERVATION, {"host": name}).one_or_none()
        if stored is not None and stored.turn > turn:
            return False
        if stored is None and self._db.execute(_PLACEMENT, {"host": name}).one_or_none() is None:
            return False
        pools_observed(self._db, snapshot.pools)
        # without its driver's word a GPU's model is a number, and unchanged is a host that was there before models were
        named = [gpu for gpu in snapshot.gpus if gpu.uuid]
        if named:
            its = {"its_host": name}
            self._db.execute(_MODEL, [{**its, "its_address": gpu.address, "its_model": gpu.model} for gpu in named])
        text, new = observation_values(name, snapshot, turn)
        digest, disk = new["digest"], new["disk_bytes"]
        if stored is not None and abs(stored.disk_bytes - disk) < DISK_STEP:
            disk = stored.disk_bytes
        observation = {"turn": turn, "storage_free_bytes": new["storage_free_bytes"], "disk_bytes": disk}
        if stored is not None and stored.digest == digest and self._is_stored(name, digest, text):
            self._db.execute(_CHANGE_OBSERVATION, {"its_host": name, **observation})
            if disk != stored.disk_bytes:
                self._usage.touch(name)
            return True
        facts = facts_text(facts_of(snapshot))
        self._db.execute(_NO_OBSERVATION, {"its_host": name})
        self._db.execute(_DROP_SNAPSHOT, {"its_host": name})
        self._db.execute(PUT_DOCUMENT, {"host": name, "document": text})
        self._db.execute(_PUT_OBSERVATION, {**new, "facts": facts, "disk_bytes": disk})
        self._events.note("host", name, "observed", host=name)
        if stored is None or (stored.facts, stored.disk_bytes) != (facts, disk):
            self._usage.touch(name)
        return True

    def _is_stored(self, name: str, digest: str, text: str) -> bool:
        """Asked once for each digest: a document that was damaged is written again, though its digest is the same."""
        if self._parsed.whole.get(name) != digest:
            if self._db.execute(_HAS_DOCUMENT, {"host": name, "text": text}).one_or_none() is None:
                return False
            self._parsed.whole[name] = digest
        return True

    def snapshot(self, name: str) -> HostSnapshot | None:
        stored = self._db.execute(_OBSERVATION, {"host": name}).one_or_none()
        if stored is None:
            return None
        known = self._parsed.get(name, stored.digest)
        if known is None:
            known = self._read(name)
            if known is None:
                return None
            self._parsed.keep(name, stored.digest, known)
        return (
            known if stored.storage_free_bytes is None else replace(known, storage_free_bytes=stored.storage_free_bytes)
        )

    def digests(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Of the snapshot of each host that has one, of these alone: another digest, another snapshot."""
        rows = self._db.execute(_DIGESTS) if names is None else self._db.execute(*_DIGESTS_OF(names))
        return {row.host: row.digest for row in rows}

    def snapshot_turn(self, name: str) -> int | None:
        """The newest turn when the observation that gave the snapshot began."""
        turn: int | None = self._db.execute(_TURN, {"host": name}).scalar_one_or_none()
        return turn

    def _read(self, name: str) -> HostSnapshot | None:
        """None: it cannot be read, so its host is as one that was never observed; the next observation replaces it."""
        try:
            return snapshot_from_text(self._db.execute(_DOCUMENT, {"host": name}).scalar_one())
        except ValueError:
            log.exception("the stored snapshot of %s cannot be read", name)
            return None

    def _gpus_of(self, name: str) -> tuple[str, ...]:
        return tuple(self._db.execute(_ITS_GPUS, {"host": name}).scalars())


def observation_values(name: str, snapshot: HostSnapshot, turn: int) -> tuple[str, dict[str, Any]]:
    """The document without what changes by itself, and a row of ``looks`` without the facts."""
    text = snapshot_text(replace(snapshot, storage_free_bytes=0))
    return text, {
        "host": name,
        "turn": turn,
        "storage_free_bytes": snapshot.storage_free_bytes,
        "disk_bytes": disk_of(snapshot),
        "digest": sha256(text.encode()).hexdigest(),
    }
