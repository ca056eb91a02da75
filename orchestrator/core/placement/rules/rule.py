# SPDX-License-Identifier: Apache-2.0
"""What a constraint consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeVar


class Fact:
    """Something that a host has or lacks. Hosts are grouped by their facts, so it is frozen and hashable."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 128


class Need(ABC):
    """What a VM needs of its host; frozen and hashable. A VM that may be anywhere has none."""

    __slots__ = ()
    codes: ClassVar[tuple[str, ...]]
    """Of what may be missing."""

    @abstractmethod
    def missing(self, facts: tuple[Fact, ...]) -> Iterator[str]:
        """Codes of why a host with these facts can never take the VM."""

    @abstractmethod
    def message(self, code: str) -> str:
        """One of these codes for people."""


FactT = TypeVar("FactT", bound=Fact)


def find(facts: tuple[Fact, ...], kind: type[FactT]) -> FactT | None:
    """The fact of that kind; None: nothing is known of it."""
    for one in facts:
        if isinstance(one, kind):
            return one
    return None
