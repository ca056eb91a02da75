# SPDX-License-Identifier: Apache-2.0
"""Hosts grouped by how much CPU and memory is free, in steps of what requests ask for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

_MAX_STEPS = 64
_MAX_LEVELS = 65536


class Steps:
    """Amounts that requests asked for, sorted. Two hosts between the same steps are alike to every request."""

    def __init__(self) -> None:
        self._amounts: list[int] = []

    def learn(self, amount: int) -> bool:
        """Whether ``amount`` became a new step, after which every host's level must be found again."""
        if self.knows(amount) or len(self._amounts) >= _MAX_STEPS:
            return False
        insort(self._amounts, amount)
        return True

    def knows(self, amount: int) -> bool:
        """Whether levels tell exactly which hosts have this much; there is room for so many steps only."""
        at = bisect_left(self._amounts, amount)
        return at < len(self._amounts) and self._amounts[at] == amount

    def level(self, free: int) -> int:
        """Steps that ``free`` covers."""
        return bisect_right(self._amounts, free)


class HostClasses:
    """Interned (CPU level, memory level) and which of them serve a request."""

    def __init__(self) -> None:
        self.vcpus, self.memory = Steps(), Steps()
        self._ids: dict[tuple[int, int], int] = {}
        self._keys: list[tuple[int, int]] = []
        self._fitting: dict[tuple[int, int], list[bool]] = {}
        self._learned: set[tuple[int, int]] = set()
        self._levels: dict[tuple[int, int], tuple[int, int]] = {}
        self._told_apart: dict[tuple[int, int], bool] = {}
        self.hosts: dict[tuple[int, int], int] = {}
        """(CPU level, memory level) → number of hosts there."""

    def learn(self, vcpus: int, memory_mib: int) -> bool:
        """Make these amounts steps. True: levels changed, classify every host again."""
        if (vcpus, memory_mib) in self._learned:
            return False
        if len(self._learned) < _MAX_LEVELS:
            self._learned.add((vcpus, memory_mib))
        changed = self.vcpus.learn(vcpus) | self.memory.learn(memory_mib)
        if changed:
            self._fitting.clear()
            self._levels.clear()
            self._told_apart.clear()
            self.hosts.clear()
        return changed

    def tells_apart(self, vcpus: int, memory_mib: int) -> bool:
        """Whether the classes separate hosts that have this much from those that do not."""
        known = self._told_apart.get((vcpus, memory_mib))
        if known is None:
            if len(self._told_apart) >= _MAX_LEVELS:
                self._told_apart.clear()
            known = self._told_apart[vcpus, memory_mib] = self.vcpus.knows(vcpus) and self.memory.knows(memory_mib)
        return known

    def levels(self, vcpus: int, memory_mib: int) -> tuple[int, int]:
        """Levels of a host with this much free."""
        known = self._levels.get((vcpus, memory_mib))
        if known is None:
            if len(self._levels) >= _MAX_LEVELS:
                self._levels.clear()
            known = self._levels[vcpus, memory_mib] = self.vcpus.level(vcpus), self.memory.level(memory_mib)
        return known

    def class_of(self, levels: tuple[int, int]) -> int:
        """The class of GPUs on hosts of these levels."""
        known = self._ids.get(levels)
        if known is None:
            known = self._ids[levels] = len(self._keys)
            self._keys.append(levels)
        return known

    def recount(self, old: tuple[int, int] | None, new: tuple[int, int] | None) -> None:
        """A host moved from ``old`` to ``new`` levels; None: it was or is no longer counted."""
        if old is not None:
            left = self.hosts.get(old, 0) - 1
            if left > 0:
                self.hosts[old] = left
            else:
                self.hosts.pop(old, None)
        if new is not None:
            self.hosts[new] = self.hosts.get(new, 0) + 1

    def any_host(self, vcpus: int, memory_mib: int) -> bool:
        """Whether some host has that much of both; may be wrongly True beyond 64 different amounts."""
        cpu, memory = self.levels(vcpus, memory_mib)
        for has_cpu, has_memory in self.hosts:  # noqa: SIM110 - asked at each decision, and a generator costs more
            if has_cpu >= cpu and has_memory >= memory:
                return True
        return False

    def fitting(self, vcpus: int, memory_mib: int) -> list[bool]:
        """By class id: whether its members have room for this.

        Unless ``tells_apart`` says yes, some members of the classes found may lack the last bit.
        """
        cpu, memory = self.levels(vcpus, memory_mib)
        row = self._fitting.get((cpu, memory))
        if row is None:
            row = self._fitting[cpu, memory] = []
        if len(row) < len(self._keys):
            for known in self._keys[len(row) :]:
                row.append(known[0] >= cpu and known[1] >= memory)
        return row
