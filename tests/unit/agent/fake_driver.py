# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.core.errors import Fatal
from tests.unit.agent.fake_sysfs import FakeSysfs

PERSISTENCE = "persistence mode"


class FakeUses:
    """What NVIDIA's driver says of the use of its GPUs: persistence mode is one more user of a GPU."""

    def __init__(self, host: FakeSysfs) -> None:
        self.host = host
        self.running: dict[str, tuple[int, ...]] = {}
        self.keeps_persistence = self.keeps_ecc = False

    def persistence(self, gpu: str) -> bool:
        return PERSISTENCE in self.host.uses.get(gpu, set())

    def set_persistence(self, gpu: str, *, on: bool) -> None:
        if self.keeps_persistence or self.host.driver_of(gpu) != "nvidia":
            raise Fatal("gpu.persistence_refused", "the driver does not switch persistence mode")
        uses = self.host.uses.setdefault(gpu, set())
        uses.add(PERSISTENCE) if on else uses.discard(PERSISTENCE)

    def set_modes(self, gpu: str, *, ecc: bool | None, mig: bool | None) -> bool:
        now, pending = self.host.ecc.get(gpu, (ecc, ecc))
        if ecc is None or (now, pending) == (ecc, ecc):
            return False
        self.host.ecc[gpu] = (now is True, ecc is not self.keeps_ecc)
        return self.host.ecc[gpu] != (ecc, ecc)

    def processes(self, gpu: str) -> tuple[int, ...]:
        return self.running.get(gpu, ())

    @contextmanager
    def closed(self) -> Iterator[None]:
        yield
