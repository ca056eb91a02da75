# SPDX-License-Identifier: Apache-2.0
"""A set of small integers with add, discard and smallest in constant time, and no tombstones."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = 1024


class IndexSet:
    """Two levels of bit masks: which blocks are not empty, and what is in each block."""

    __slots__ = ("_blocks", "_summary")

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._summary = 0

    def __bool__(self) -> bool:
        return self._summary != 0

    def __len__(self) -> int:
        return sum(bin(block).count("1") for block in self._blocks.values())

    def __iter__(self) -> Iterator[int]:
        """Rising order."""
        summary = self._summary
        while summary:
            low = summary & -summary
            number = low.bit_length() - 1
            block = self._blocks[number]
            while block:
                bit = block & -block
                yield number * _BITS + bit.bit_length() - 1
                block ^= bit
            summary ^= low

    def add(self, item: int) -> None:
        """Put ``item`` in; being there already is fine."""
        number, offset = divmod(item, _BITS)
        self._blocks[number] = self._blocks.get(number, 0) | 1 << offset
        self._summary |= 1 << number

    def discard(self, item: int) -> None:
        number, offset = divmod(item, _BITS)
        block = self._blocks.get(number, 0) & ~(1 << offset)
        if block:
            self._blocks[number] = block
        elif number in self._blocks:
            del self._blocks[number]
            self._summary &= ~(1 << number)

    def smallest(self) -> int:
        """The smallest member of a set that is not empty."""
        low = self._summary & -self._summary
        number = low.bit_length() - 1
        block = self._blocks[number]
        return number * _BITS + (block & -block).bit_length() - 1
