# SPDX-License-Identifier: Apache-2.0
"""An A100 in MIG mode on a fake host: its driver alone chooses in which free GPU instance a vGPU comes to lie. As typed
functions or as mediated devices of functions."""

from __future__ import annotations

import errno
from pathlib import Path

from orchestrator.core.gpu.device import Device, InstancePlace
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_sysfs import FakeSysfs, FakeType

A100 = "0000:03:00.0"
VFS = tuple(f"0000:03:00.{number}" for number in range(1, 5))
MDEVS = tuple(f"a1000000-0000-4000-8000-00000000000{number}" for number in range(1, 5))
"""One for each function."""
TYPES = (FakeType(1054, "GRID A100D-1-20C", 20480, 4), FakeType(699, "GRID A100D-1-10C", 10240, 7))
PROFILES = {1054: "1g.20gb", 699: "1g.10gb"}


class A100Host(FakeSysfs):
    def __init__(
        self, root: Path, mig: FakeMig, *, enabled: int = 4, most: int = 1, mediated: bool = False
    ) -> None:  # fmt: skip
        """``most``: vGPUs of one type that a GPU instance takes. ``mediated``: as its kernel makes them."""
        super().__init__(root)
        self.inside: dict[str, int] = {}
        """Function → GPU instance."""
        self.most, self.mediated = most, mediated
        self.tells = True
        """Of a vGPU in which instance it lies."""
        self.mig = mig
        mig.changed = self.refresh
        mig.users = lambda _gpu, number: number in self.inside.values()
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

    def device(self, vf: int, start: int) -> Device:
        """The VM's on that function, in a quarter of the GPU."""
        name = MDEVS[vf] if self.mediated else VFS[vf]
        bare = Device(kind="mig_backed", gpu=A100, parent=VFS[vf], type_name=TYPES[0].name, name=name)
        return bare.inside(InstancePlace(PROFILES[TYPES[0].id], start))

    def by_hand(self, vf: int, type_id: int) -> None:
        """As an administrator makes one."""
        if not self.mediated:
            return self.set_type(VFS[vf], type_id)
        create = self.paths.pci(VFS[vf]) / "mdev_supported_types" / f"nvidia-{type_id}" / "create"
        assert self._create(create, MDEVS[vf]) == 0
        return self.refresh()

    def _offer_on(self, function: Path) -> None:
        if not self.mediated:
            return super()._offer_on(function)
        for kind in TYPES:
            directory = function / "mdev_supported_types" / f"nvidia-{kind.id}"
            self.text(directory / "name", kind.name)
            self.text(directory / "create", "")
        return None

    def _refresh_functions(self, gpu: str) -> None:
        if not self.mediated:
            return super()._refresh_functions(gpu)
        for link in self.paths.pci(gpu).glob("virtfn*"):
            function = link.readlink()
            for kind in TYPES:
                left = function.name not in self.inside and self._free(kind.id) is not None
                directory = function / "mdev_supported_types" / f"nvidia-{kind.id}"
                self.text(directory / "available_instances", str(int(left)))
        return None

    def _refresh_mdev(self, gpu: str) -> None:
        """Done with the functions."""

    def _create(self, path: Path, uuid: str) -> int:
        chosen, function = self._free(int(path.parent.name.removeprefix("nvidia-"))), path.parents[2]
        answer = super()._create(path, uuid)
        if answer == 0 and chosen is not None:
            self.inside[function.name] = chosen
            if self.tells:
                self.text(function / uuid / "nvidia/gpu_instance_id", str(chosen))
        return answer

    def _remove(self, device: Path) -> int:
        self.inside.pop(device.parent.name, None)
        return super()._remove(device)

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
            told = chosen if chosen is not None and self.tells else 0xFFFFFFFF
            self.text(path.parent / "gpu_instance_id", str(told))
        return answer
