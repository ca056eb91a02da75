# SPDX-License-Identifier: Apache-2.0
"""A driver's MIG in memory, with NVML's answers as the agent translates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.core.errors import Conflict, Fatal

SIZES = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "7g.80gb": 8}


@dataclass
class FakeMig:
    """GPUs that are named in ``mode`` have MIG. Errors in ``answers`` are given by name of the call, once each."""

    mode: dict[str, bool] = field(default_factory=dict)
    pending: dict[str, bool] = field(default_factory=dict)
    there: dict[str, tuple[FoundInstance, ...]] = field(default_factory=dict)
    answers: dict[str, Exception] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    stays_pending: bool = False
    shared: frozenset[str] = frozenset()
    """Profiles whose instances take several vGPUs."""
    users: Callable[[str, int], bool] = lambda _gpu, _id: False
    """Whether a vGPU lies in the instance."""
    lost: Exception | None = None
    """The answer of a driver that has the GPU no more."""
    changed: Callable[[], None] = lambda: None
    """Called when there are other instances than before."""

    def modes(self, gpu: str) -> tuple[bool, bool] | None:
        if gpu not in self.mode:
            return None
        return self.mode[gpu], self.pending.get(gpu, self.mode[gpu])

    def set_mode(self, gpu: str, *, on: bool) -> None:
        self._called("set_mode", gpu)
        self.pending[gpu] = on
        if not self.stays_pending:
            self.mode[gpu] = on

    def instances(self, gpu: str) -> tuple[FoundInstance, ...]:
        if self.lost is not None:
            raise self.lost
        return self.there.get(gpu, ())

    def shares(self, _gpu: str, profile: str) -> bool:
        return profile in self.shared

    def create(self, gpu: str, profile: str, start: int) -> None:
        self._called("create", gpu)
        size = SIZES[profile]
        if any(start < one.start + one.size and one.start < start + size for one in self.instances(gpu)):
            raise Fatal("gpu.instance_refused", "there is no room for it")
        number = max((one.id for one in self.instances(gpu)), default=0) + 1
        self.put(gpu, FoundInstance(id=number, profile=profile, start=start, size=size, compute=(0,)))

    def put(self, gpu: str, *found: FoundInstance) -> None:
        """As somebody else makes them."""
        self.there[gpu] = (*self.instances(gpu), *found)
        self.changed()

    def fill(self, gpu: str, instance_id: int) -> None:
        self._called("fill", gpu)
        self.there[gpu] = tuple(
            replace(one, compute=(0,)) if one.id == instance_id else one for one in self.instances(gpu)
        )

    def destroy(self, gpu: str, instance_id: int) -> None:
        self._called("destroy", gpu)
        if self.users(gpu, instance_id):
            raise Conflict("gpu.in_use", "a vGPU is in it")
        self.there[gpu] = tuple(one for one in self.instances(gpu) if one.id != instance_id)
        self.changed()

    def _called(self, name: str, gpu: str) -> None:
        self.calls.append(f"{name} {gpu}")
        error = self.answers.pop(name, None)
        if error is not None:
            raise error
