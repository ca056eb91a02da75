# SPDX-License-Identifier: Apache-2.0
"""An A100 in MIG mode on a fake host: its driver alone chooses in which free GPU instance a vGPU comes to lie."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_sysfs import FakeSysfs, FakeType

A100 = "0000:03:00.0"
VFS = tuple(f"0000:03:00.{number}" for number in range(1, 5))
TYPES = (FakeType(1054, "GRID A100D-1-20C", 20480, 4), FakeType(699, "GRID A100D-1-10C", 10240, 7))
PROFILES = {1054: "1g.20gb", 699: "1g.10gb"}


class A100Host(FakeSysfs):
    def __init__(self, root: Path, mig: FakeMig, *, enabled: int = 4, most: int = 1) -> None:
        """``most``: vGPUs of one type that a GPU instance takes."""
        super().__init__(root)
        self.most = most
        self.mig = mig
        mig.changed = self.refresh
        mig.users = lambda _gpu, number: number in self.inside.values()
        self.inside: dict[str, int] = {}
        """Function → GPU instance."""
        directory = self.add_function(A100, device="20b5")
        self.text(directory / "sriov_totalvfs", "16")
        self.text(directory / "sriov_numvfs", "0")
        self._types[A100] = TYPES
        if enabled:
            self.enable_functions(A100, enabled)

    def _free(self, type_id: int) -> int | None:
        """The driver takes the first that it finds."""
        return next(
            (
                one.id
                for one in self.mig.instances(A100)
                if one.profile == PROFILES[type_id] and list(self.inside.values()).count(one.id) < self.most
            ),
            None,
        )

    def _fitting(self, gpu: str, used: list[FakeType]) -> list[FakeType]:
        return [one for one in TYPES if self._free(one.id) is not None] if gpu == A100 else super()._fitting(gpu, used)

    def write(self, path: Path, value: str) -> None:
        super().write(path, value)
        self.refresh()

    def refresh(self) -> None:
        """What is creatable follows the GPU instances."""
        self._refresh_functions(A100)

    def _set_type(self, path: Path, value: str) -> int:
        function = path.parents[1].name
        chosen = self._free(int(value)) if value != "0" else None
        if value != "0" and chosen is None:
            return errno.EIO
        self.refresh()
        answer = super()._set_type(path, value)
        if answer == 0:
            self.inside.pop(function, None)
            if chosen is not None:
                self.inside[function] = chosen
            self.text(path.parent / "gpu_instance_id", str(chosen if chosen is not None else 0xFFFFFFFF))
        return answer
