# SPDX-License-Identifier: Apache-2.0
"""Which cards are ours, in the ledger's file, and which one is at an address now: nothing is made by an address alone.

A card that is seen first at the address of a GPU of ours is taken to be that GPU. From then on another one there is
refused until somebody says that it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.agent.ledger_file import LedgerFile, Row
from orchestrator.core.actions.gpu_cards import GpuCard, moves
from orchestrator.core.errors import Conflict, Retryable

_BY_ADDRESS = (("functions", "gpu"), ("mig_modes", "gpu"))
"""Tables of what is known of a card and stays when the host boots."""
Ask = Callable[[], Sequence[GpuCard]]


def nobody() -> Sequence[GpuCard]:
    """A host whose driver does not answer."""
    return ()


class GpuCards:
    def __init__(self, file: LedgerFile, boot_id: str, ask: Ask) -> None:
        """``ask``: what the driver says now; asked at most once for each card and boot."""
        self._file, self._boot_id, self._ask = file, boot_id, ask

    def saw(self, cards: Iterable[GpuCard]) -> None:
        """The driver says so now.

        :raises Fatal: ``agent.ledger_unusable``"""
        before = self._seen()
        fresh = [card for card in cards if before.get(card.address) != card]
        if not fresh:
            return
        with self._file.write():
            self._file.run("DELETE FROM seen_cards WHERE boot_id != ?", (self._boot_id,))
            for card in fresh:
                self._file.run(
                    "INSERT OR REPLACE INTO seen_cards (gpu, boot_id, uuid, serial) VALUES (?, ?, ?, ?)",
                    (card.address, self._boot_id, card.uuid, card.serial),
                )
                self._file.run(
                    "UPDATE gpus SET uuid = ?, serial = ? WHERE address = ? AND uuid IS NULL",
                    (card.uuid, card.serial, card.address),
                )

    def check(self, gpu: str) -> None:
        """That the card there is the one that is ours. ``gpu``: PCI address.

        :raises Conflict: ``gpu.replaced``; :raises Retryable: ``gpu.not_identified``"""
        known = self._accepted().get(gpu)
        if known is None:
            return
        if gpu not in self._seen():
            self.saw(self._ask())
        now = self._seen().get(gpu)
        if now is None:
            raise Retryable(
                "gpu.not_identified",
                f"the driver does not say which card is at {gpu}",
                hint=f"is NVIDIA's driver loaded? 'vgpuctl gpu show HOST {gpu}' says which driver has it",
                details=f"accepted: {known.words}",
            )
        if now.uuid != known.uuid:
            raise Conflict(
                "gpu.replaced",
                f"another card is at {gpu}: {now.words} and not {known.words}",
                hint=f"'vgpuctl gpu accept HOST {gpu}' says that the cards are right where they are now",
            )

    def strangers(self) -> dict[str, str]:
        """For people, by the GPU: another card is there than is ours. Not of those that are not known."""
        known, now = self._accepted(), self._seen()
        return {
            gpu: f"another card is there than was accepted: {now[gpu].words} and not {known[gpu].words}"
            for gpu in known.keys() & now.keys()
            if known[gpu].uuid != now[gpu].uuid
        }

    def uuids(self) -> dict[str, str]:
        """By the GPU: of the card that the driver has told of last, or of the one that is ours."""
        return {gpu: card.uuid for gpu, card in {**self._accepted(), **self._seen()}.items()}

    def accept(self, cards: Sequence[GpuCard]) -> bool:
        """These are ours, where they are. Whether something was otherwise."""
        before = self._accepted()
        if all(before.get(card.address) == card for card in cards):
            return False
        where = moves(before.values(), cards)
        with self._file.write():
            for table, column in _BY_ADDRESS:
                self._move(table, column, where)
            self._file.run_many("DELETE FROM gpus WHERE address = ?", [(old,) for old in where])
            self._file.run_many(
                "INSERT OR REPLACE INTO gpus (address, uuid, serial) VALUES (?, ?, ?)",
                [(card.address, card.uuid, card.serial) for card in cards],
            )
        return True

    def _move(self, table: str, column: str, where: Mapping[str, str]) -> None:
        """Two cards may have changed places, so that both rows are out of the way first."""
        for old in where:
            self._file.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (f"from {old}", old))  # noqa: S608
        for old, new in where.items():
            self._file.run(f"DELETE FROM {table} WHERE {column} = ?", (new,))  # noqa: S608 - of a card that is gone
            self._file.run(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, f"from {old}"))  # noqa: S608

    def _accepted(self) -> dict[str, GpuCard]:
        with self._file.read():
            rows = self._file.all("SELECT address, uuid, serial FROM gpus WHERE uuid IS NOT NULL")
        return _cards(rows)

    def _seen(self) -> dict[str, GpuCard]:
        with self._file.read():
            rows = self._file.all("SELECT gpu, uuid, serial FROM seen_cards WHERE boot_id = ?", self._boot_id)
        return _cards(rows)


def _cards(rows: Iterable[Row]) -> dict[str, GpuCard]:
    cards = (
        GpuCard(address=str(address), uuid=str(uuid), serial=None if serial is None else str(serial))
        for address, uuid, serial in rows
    )
    return {card.address: card for card in cards}
