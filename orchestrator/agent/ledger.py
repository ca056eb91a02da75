# SPDX-License-Identifier: Apache-2.0
"""What the agent must not forget: whom it obeys, how far each operation got, and who owns each object.

Every change is on disk (SQLite, synchronous=EXTRA) before the effect it is about, so that after a crash an object
on the host is either not there or known to be ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.gpu_cards import Ask, GpuCards, nobody
from orchestrator.agent.ledger_file import LedgerFile
from orchestrator.core.actions.host_actions import FencingToken, HostAction
from orchestrator.core.actions.settle_ledger import SettleLedger
from orchestrator.core.errors import Conflict, Denied
from orchestrator.core.protocol import highest_epoch

_FIRST = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (
  number INTEGER PRIMARY KEY AUTOINCREMENT, operation TEXT NOT NULL UNIQUE, attempt INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS owners (
  object TEXT PRIMARY KEY, vm TEXT NOT NULL, boot_id TEXT, detail TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS gpus (address TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS functions (gpu TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS wanted (
  vm TEXT PRIMARY KEY, running INTEGER NOT NULL DEFAULT 0, boot_policy TEXT NOT NULL DEFAULT 'local',
  device TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '');
"""

_DEVICES = """
ALTER TABLE wanted RENAME COLUMN device TO devices;
UPDATE wanted SET devices = '[' || devices || ']';
"""

_MIG_MODES = """
CREATE TABLE mig_modes (gpu TEXT PRIMARY KEY, before INTEGER NOT NULL, wanted INTEGER);
"""

_SCHEDULERS = """
CREATE TABLE schedulers (gpu TEXT PRIMARY KEY, boot_id TEXT NOT NULL, before TEXT NOT NULL);
CREATE TABLE scheduler_users (gpu TEXT NOT NULL, vm TEXT NOT NULL, PRIMARY KEY (gpu, vm));
"""

_MIXED_SIZES = """
CREATE TABLE mixed_sizes (gpu TEXT PRIMARY KEY, boot_id TEXT NOT NULL, before TEXT NOT NULL);
CREATE TABLE mixed_sizes_users (gpu TEXT NOT NULL, vm TEXT NOT NULL, PRIMARY KEY (gpu, vm));
"""

_CARDS = """
ALTER TABLE gpus ADD COLUMN uuid TEXT;
ALTER TABLE gpus ADD COLUMN serial TEXT;
CREATE TABLE seen_cards (gpu TEXT PRIMARY KEY, boot_id TEXT NOT NULL, uuid TEXT NOT NULL, serial TEXT);
"""

_DESCRIBED = """
ALTER TABLE wanted ADD COLUMN described TEXT NOT NULL DEFAULT '';
"""

_MADE_BY_ONE_ACTION = """
UPDATE wanted SET devices = (
  SELECT json_group_array(json(CASE
    WHEN json_extract(value, '$.action') IN
      ('CreateMdev', 'CreatePlacedMdev', 'CreateInstanceMdev', 'SetVgpuType', 'SetPlacedType', 'SetInstanceType')
    THEN json_set(
      json_remove(value, '$.vf', '$.gpu', '$.start', '$.placement_id'),
      '$.action', 'MakeVgpu',
      '$.parent', coalesce(json_extract(value, '$.parent'), json_extract(value, '$.vf')),
      '$.at', json(CASE
        WHEN json_extract(value, '$.placement_id') IS NOT NULL
        THEN json_object('within', 'gpu', 'start', json_extract(value, '$.placement_id'))
        WHEN json_extract(value, '$.start') IS NOT NULL
        THEN json_object('within', 'instance', 'start', json_extract(value, '$.start')) END))
    ELSE value END))
  FROM json_each(wanted.devices))
WHERE devices LIKE '%Mdev"%' OR devices LIKE '%Type"%';
"""
"""Until protocol 9 six actions made vGPUs."""

_GONE = """
ALTER TABLE wanted ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;
"""

_POWER = """
CREATE TABLE power_limits (gpu TEXT PRIMARY KEY, watts INTEGER NOT NULL);
"""

_SCHEMA = (
    _FIRST, _DEVICES, _MIG_MODES, _SCHEDULERS, _MIXED_SIZES, _CARDS, _DESCRIBED, _MADE_BY_ONE_ACTION, _GONE, _POWER,
)  # fmt: skip
"""What brings the file from each version to the next. One of version 0 may have the tables of version 1 already:
the first agents wrote no version down."""

_LOST = "lost"
_KEPT_OPERATIONS = 100_000
"""Operations remembered; an attempt of one that is older than so many others cannot still be on its way."""


@dataclass(frozen=True)
class Ownership:
    """``vm`` owns an object; ``detail`` is what it was made as (a vGPU type, a digest)."""

    vm: str
    detail: str


class Ledger:
    """One file; safe to use from many threads."""

    def __init__(
        self, directory: Path, *, site: str, epoch: int, boot_id: str, found: bool = False, cards: Ask = nobody
    ) -> None:
        """``found``: files that only we make are here, so that a ledger which is new is one that was lost. ``cards``:
        which the driver says are where.

        :raises Fatal: ``agent.ledger_unusable``, ``agent.ledger_newer``"""
        self._site, self.boot_id = site, boot_id
        self.file = LedgerFile(directory, _SCHEMA)
        self.cards = GpuCards(self.file, boot_id, cards)
        with self.file.write():
            if found and self.file.meta("site") is None:
                self.file.set_meta(_LOST, "1")
            self._check_site()
            self._raise_epoch(epoch)

    def close(self) -> None:
        self.file.close()

    def check_site(self, site: str) -> None:
        """:raises Denied: ``agent.other_site``"""
        if site != self._site:
            raise Denied(
                "agent.other_site",
                "this host obeys another control plane",
                hint="if the other one is gone, add it with --take-over: 'vgpuctl host add --help'",
            )

    def is_lost(self) -> bool:
        """Whose the things on this host are is not known, until somebody has settled it."""
        with self.file.read():
            return self.file.meta(_LOST) is not None

    def settled(self) -> None:
        """It is known again."""
        with self.file.write():
            self.file.run("DELETE FROM meta WHERE key = ?", (_LOST,))

    def admit(self, token: FencingToken, action: HostAction | None = None) -> None:
        """Remember the token, or refuse one that is older than what was seen. ``action``: what it comes with.

        :raises Denied: ``agent.other_site``, ``agent.stale_token``, ``agent.epoch_ahead``
        :raises Conflict: ``agent.ledger_lost``
        """
        self.check_site(token.site)
        if not isinstance(action, SettleLedger) and self.is_lost():
            raise Conflict(
                "agent.ledger_lost",
                "the host's agent has lost its ledger: whose the things there are is not known",
                hint="'vgpuctl doctor --repair' writes it again from the database and the host",
            )
        with self.file.write():
            epoch = self._epoch()
            row = self.file.one("SELECT attempt FROM attempts WHERE operation = ?", token.operation)
            seen = -1 if row is None else int(str(row[0]))
            if token.is_stale(epoch, seen):
                raise Denied(
                    "agent.stale_token",
                    "a newer controller or attempt took this operation over",
                    details=f"epoch {token.epoch}, attempt {token.attempt}; seen: epoch {epoch}, attempt {seen}",
                )
            if token.epoch > highest_epoch(epoch, time.time()):
                raise Denied(
                    "agent.epoch_ahead",
                    "no server can have counted so far: the request's epoch is refused",
                    hint="after a restore: is the host's clock right?",
                    details=f"epoch {str(token.epoch)[:30]}; seen: epoch {epoch}",
                )
            if token.epoch > epoch or token.attempt > seen:
                self._raise_epoch(token.epoch)
                self.file.run(
                    "INSERT INTO attempts (operation, attempt) VALUES (?, ?) "
                    "ON CONFLICT (operation) DO UPDATE SET attempt = excluded.attempt",
                    (token.operation, token.attempt),
                )
                self.file.run(
                    "DELETE FROM attempts WHERE number <= (SELECT MAX(number) FROM attempts) - ?", (_KEPT_OPERATIONS,)
                )

    def owner(self, key: str) -> Ownership | None:
        """Who owns the object; None when it is not ours. What lives in kernel memory is nobody's after a reboot."""
        with self.file.read():
            row = self.file.one("SELECT vm, boot_id, detail FROM owners WHERE object = ?", key)
        if row is None or row[1] not in (None, self.boot_id):
            return None
        return Ownership(vm=str(row[0]), detail=str(row[2]))

    def owned(self, prefix: str) -> dict[str, Ownership]:
        """All objects of ours whose keys begin so; their keys without it."""
        with self.file.read():
            rows = self.file.all("SELECT object FROM owners WHERE substr(object, 1, ?) = ?", len(prefix), prefix)
        owners = {str(row[0]): self.owner(str(row[0])) for row in rows}
        return {key.removeprefix(prefix): owner for key, owner in owners.items() if owner is not None}

    def claim(self, key: str, vm: str, *, detail: str = "", until_reboot: bool = False) -> None:
        """Record the owner before the object is made.

        :raises Conflict: ``host.owned_by_other``
        """
        with self.file.write():
            row = self.file.one("SELECT vm, boot_id FROM owners WHERE object = ?", key)
            if row is not None and row[0] != vm and row[1] in (None, self.boot_id):
                raise Conflict("host.owned_by_other", f"{key} belongs to another VM", details=f"owner {row[0]}")
            self.file.run(
                "INSERT INTO owners (object, vm, boot_id, detail) VALUES (?, ?, ?, ?) ON CONFLICT (object) "
                "DO UPDATE SET vm = excluded.vm, boot_id = excluded.boot_id, detail = excluded.detail",
                (key, vm, self.boot_id if until_reboot else None, detail),
            )

    def release(self, key: str) -> None:
        """Forget the owner after the object is gone."""
        with self.file.write():
            self.file.run("DELETE FROM owners WHERE object = ?", (key,))

    def managed_gpus(self) -> frozenset[str]:
        with self.file.read():
            return frozenset(str(row[0]) for row in self.file.all("SELECT address FROM gpus"))

    def manage_gpus(self, addresses: tuple[str, ...]) -> None:
        """Of those that stay it is still known which cards they are."""
        with self.file.write():
            before = {str(row[0]) for row in self.file.all("SELECT address FROM gpus")}
            self.file.run_many("DELETE FROM gpus WHERE address = ?", [(a,) for a in before - set(addresses)])
            self.file.run_many("INSERT INTO gpus (address) VALUES (?)", [(a,) for a in sorted(set(addresses) - before)])

    def note_mig_mode(self, gpu: str, *, before: bool, wanted: bool | None = None) -> None:
        """Remember the mode that a GPU had before we changed it for the first time. ``wanted``: what we set since."""
        row = (gpu, int(before), None if wanted is None else int(wanted))
        with self.file.write():
            self.file.run("INSERT OR IGNORE INTO mig_modes (gpu, before, wanted) VALUES (?, ?, ?)", row)

    def mig_mode_before(self, gpu: str) -> bool | None:
        """None: we have not changed it."""
        with self.file.read():
            row = self.file.one("SELECT before FROM mig_modes WHERE gpu = ?", gpu)
        return None if row is None else bool(row[0])

    def forget_mig_mode(self, gpu: str) -> None:
        with self.file.write():
            self.file.run("DELETE FROM mig_modes WHERE gpu = ?", (gpu,))

    def power_limits(self) -> dict[str, int]:
        """In watts, by GPU that shall keep to less than its own."""
        with self.file.read():
            return {str(row[0]): int(str(row[1])) for row in self.file.all("SELECT gpu, watts FROM power_limits")}

    def note_power_limit(self, gpu: str, watts: int) -> None:
        """0: none."""
        with self.file.write():
            if watts:
                self.file.run("INSERT OR REPLACE INTO power_limits (gpu, watts) VALUES (?, ?)", (gpu, watts))
            else:
                self.file.run("DELETE FROM power_limits WHERE gpu = ?", (gpu,))

    def epoch(self) -> int:
        """The highest that was seen."""
        with self.file.read():
            return self._epoch()

    def _epoch(self) -> int:
        return int(self.file.meta("epoch") or 0)

    def _raise_epoch(self, epoch: int) -> None:
        """Move on to a newer epoch; attempts are counted anew in it."""
        if epoch > self._epoch():
            self.file.set_meta("epoch", str(epoch))
            self.file.run("DELETE FROM attempts")

    def _check_site(self) -> None:
        """A configuration for another site means a take-over: what the former site owned stays known as its VMs'.
        Epochs are counted by each site for itself."""
        if self.file.meta("site") != self._site:
            self.file.set_meta("site", self._site)
            self.file.set_meta("epoch", "0")
            self.file.run("DELETE FROM attempts")
