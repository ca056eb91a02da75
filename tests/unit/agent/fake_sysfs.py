# SPDX-License-Identifier: Apache-2.0
"""A directory tree that looks like a GPU host's sysfs and behaves like it when written to through ``write``.

What a write answers follows linux drivers/vfio/mdev and NVIDIA's vendor-specific VFIO attributes.
"""

from __future__ import annotations

import errno
import shutil
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs.write import child_argv, error_for
from orchestrator.core.errors import Unknown


@dataclass(frozen=True)
class FakeType:
    id: int
    name: str
    framebuffer_mib: int
    most: int


T4_TYPES = (
    FakeType(222, "GRID T4-1B", 1024, 16),
    FakeType(230, "GRID T4-1Q", 1024, 16),
    FakeType(231, "GRID T4-2Q", 2048, 8),
)
L40S_TYPES = (
    FakeType(14, "NVIDIA L40S-48Q", 49152, 1),
    FakeType(1145, "NVIDIA L40S-1B", 1024, 32),
    FakeType(1148, "NVIDIA L40S-2Q", 2048, 24),
)


class FakeSysfs:
    functions = 2
    """That sriov-manage switches on."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root=root, storage=root / "var/lib/vgpuctl-agent")
        self.answers: deque[int] = deque()
        """errnos that the next writes answer instead of doing anything; 0 does the write."""
        self.writes: list[tuple[str, str]] = []
        self.lacks_parameters: tuple[str, ...] = ()
        """Parameters of vGPUs that the driver takes and forgets."""
        self.holds_places = False
        """The driver moves no vGPU from where it put it."""
        self.uses: dict[str, set[str]] = {}
        """What uses a GPU in its driver though no open file shows it: ``persistence mode``, a display driver."""
        self.ecc: dict[str, tuple[bool, bool]] = {}
        """Whether ECC is on in a GPU, and whether it will be after its next reset."""
        self._types: dict[str, tuple[FakeType, ...]] = {}
        self._groups = 0
        for directory in (self.paths.pci_devices, mdev_devices(self.paths), self.paths.proc, self.paths.iommu_groups):
            directory.mkdir(parents=True)
        self.text(self.paths.proc / "sys/kernel/random/boot_id", "boot-1")

    def text(self, path: Path, content: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="utf-8")

    def add_function(self, address: str, *, device: str, pci_class: str = "0x030200", vendor: str = "0x10de") -> Path:
        directory = self.paths.pci(address)
        values = {"class": pci_class, "numa_node": "-1"}
        numbers = "v0000{}d0000{}sv0000{}sd00001234bc{}sc{}i{}".format(
            *(one.upper() for one in (vendor[2:], device, vendor[2:], pci_class[2:4], pci_class[4:6], pci_class[6:]))
        )
        values |= {"modalias": f"pci:{numbers}"}
        values |= {"driver_override": "(null)", "reset_method": "flr bus", "reset": ""}
        for name, value in values.items():
            self.text(directory / name, value)
        (directory / "config").write_bytes(bytes.fromhex(vendor[4:] + vendor[2:4]))
        self._join_group(directory)
        return directory

    def _join_group(self, device: Path) -> None:
        self._groups += 1
        group = self.paths.iommu_groups / str(self._groups)
        group.mkdir()
        (device / "iommu_group").symlink_to(group)

    def join_groups(self, *addresses: str) -> None:
        """They are in one IOMMU group from now on, with whom they were in one before."""
        links = [self.paths.pci(address) / "iommu_group" for address in addresses]
        group = links[0].readlink()
        for address, link in zip(addresses, links, strict=True):
            link.unlink()
            link.symlink_to(group)
            members = group / "devices"
            members.mkdir(exist_ok=True)
            if not (members / address).exists():
                (members / address).symlink_to(self.paths.pci(address))

    def add_drivers(self, *names: str) -> None:
        self.text(self.paths.pci_drivers.parent / "drivers_probe", "")
        for name in names:
            self.text(self.paths.pci_drivers / name / "bind", "")
            self.text(self.paths.pci_drivers / name / "unbind", "")

    def bind(self, address: str, driver: str | None) -> None:
        link = self.paths.pci(address) / "driver"
        link.unlink(missing_ok=True)
        if driver is not None:
            link.symlink_to(self.paths.pci_drivers / driver)
        offered, hidden = (self.paths.pci(address) / name for name in ("mdev_supported_types", "of the driver"))
        if driver == "nvidia" and hidden.exists():
            hidden.rename(offered)
        elif driver != "nvidia" and offered.exists():
            offered.rename(hidden)
        if driver == "nvidia":
            self.text(self._unbind_lock(address), "0")
        else:
            shutil.rmtree(self._unbind_lock(address).parent, ignore_errors=True)
            self.uses.pop(address, None)

    def _unbind_lock(self, address: str) -> Path:
        return self.paths.proc / "driver/nvidia/gpus" / address / "unbindLock"

    def unbind_locked(self, address: str) -> bool:
        file = self._unbind_lock(address)
        return file.exists() and file.read_text().strip() == "1"

    def driver_of(self, address: str) -> str | None:
        link = self.paths.pci(address) / "driver"
        return link.readlink().name if link.is_symlink() else None

    def add_t4(self, address: str) -> None:
        directory = self.add_function(address, device="1eb8")
        self._types[address] = T4_TYPES
        for kind in T4_TYPES:
            type_directory = directory / "mdev_supported_types" / f"nvidia-{kind.id}"
            self.text(type_directory / "name", kind.name)
            self.text(
                type_directory / "description",
                f"num_heads=4, framebuffer={kind.framebuffer_mib}M, max_instance={kind.most}",
            )
            self.text(type_directory / "create", "")
        self._refresh_mdev(address)

    def add_l40s(self, address: str, *, enabled: int = 2) -> None:
        directory = self.add_function(address, device="26b9")
        self.text(directory / "sriov_totalvfs", "32")
        self.text(directory / "sriov_numvfs", "0")
        self._types[address] = L40S_TYPES
        if enabled:
            self.enable_functions(address, enabled)

    def enable_functions(self, address: str, count: int) -> None:
        directory = self.paths.pci(address)
        self.text(directory / "sriov_numvfs", str(count))
        for number in range(count):
            vf = f"{address[:-2]}.{number + 1}"
            function = self.add_function(vf, device="26b9")
            (function / "physfn").symlink_to(directory)
            (directory / f"virtfn{number}").symlink_to(function)
            self._offer_on(function)
        self._refresh_functions(address)

    def _offer_on(self, function: Path) -> None:
        self.text(function / "nvidia/current_vgpu_type", "0")
        self.text(function / "nvidia/vgpu_params", "")
        self.text(function / "nvidia/placement_id", "")

    def hold_open(self, node: str, *, process: int = 4242) -> None:
        descriptors = self.paths.proc / str(process) / "fd"
        descriptors.mkdir(parents=True, exist_ok=True)
        (descriptors / str(len(list(descriptors.iterdir())))).symlink_to(node)

    def node_of(self, device: Path) -> str:
        return f"/dev/vfio/{(device / 'iommu_group').readlink().name}"

    def write(self, path: Path, value: str) -> None:
        """What the agent's kernel write is replaced with."""
        number = self.answers.popleft() if self.answers else 0
        self.writes.append((path.name, value))
        number = number or self._write(path, value)
        if number:
            raise error_for(number, path, value)

    def _write(self, path: Path, value: str) -> int:
        if not path.exists():
            return errno.ENOENT
        if path.name == "create":
            return self._create(path, value)
        if path.name == "remove":
            return self._remove(path.parent)
        if path.name in {"bind", "unbind"}:
            return self._bind(path, value)
        if path.name == "drivers_probe":
            return self._probe(path.parent / "drivers", value)
        if path.name == "unbindLock":  # NVIDIA's nv-procfs.c: it stays open while the GPU is used
            self.text(path, "0" if self.uses.get(path.parent.name) else value)
            return 0
        if path.name == "reset" and path.parent.name in self.ecc:
            self.ecc[path.parent.name] = (self.ecc[path.parent.name][1],) * 2
        if path.name in {"driver_override", "reset", "reset_method"}:
            self.text(path, "(null)" if value == "\n" else value)
            return 0
        if path.name == "vgpu_params":
            self.text(path, ",".join(one for one in value.strip().split(",") if one not in self.lacks_parameters))
            return 0
        if path.name == "placement_id":
            return self._move(path, int(value))
        return self._set_type(path, value)

    def place(self, name: str) -> str:
        """Of a vGPU, as it stands there; empty: there is none."""
        device = self.paths.pci(name) if ":" in name else mdev_devices(self.paths) / name
        return (device / "nvidia/placement_id").read_text().strip()

    def _move(self, path: Path, start: int) -> int:
        if self.holds_places or start in self._starts(path):
            return errno.EINVAL
        self.text(path, str(start))
        return 0

    def _starts(self, place: Path) -> set[int]:
        """Where the other vGPUs of the GPU begin."""
        others = (place.parents[1] / "physfn").glob("virtfn*/nvidia/placement_id")
        texts = (file.read_text().strip() for file in others if file.resolve() != place.resolve())
        return {int(text) for text in texts if text}

    def parameters(self, name: str) -> str:
        """Of a vGPU, as they stand there."""
        device = self.paths.pci(name) if ":" in name else mdev_devices(self.paths) / name
        return (device / "nvidia/vgpu_params").read_text().strip()

    def _probe(self, drivers: Path, address: str) -> int:
        """linux drivers/pci/pci-sysfs.c: that no driver knows the function is no error."""
        device = self.paths.pci(address)
        override = (device / "driver_override").read_text().strip()
        by_class = "snd_hda_intel" if (device / "class").read_text().startswith("0x04") else "nvidia"
        name = by_class if override == "(null)" else override
        if self.driver_of(address) is None and (drivers / name).exists():
            self.bind(address, name)
        return 0

    def _bind(self, path: Path, address: str) -> int:
        """linux drivers/base/bus.c: unbind needs its own device, bind a free one that the override allows; vfio-pci
        takes no physical function whose virtual functions are on."""
        name, now = path.parent.name, self.driver_of(address)
        if path.name == "unbind":
            if now != name:
                return errno.ENODEV
            if self.uses.get(address):  # NVIDIA's nv-pci.c waits for the count of users to fall to zero
                raise Unknown("vgpu.create_hung", "the GPU driver did not answer in time", details=str(path))
            self.bind(address, None)
            return 0
        override = (self.paths.pci(address) / "driver_override").read_text().strip()
        if now is not None or override not in {"(null)", name} or (name == "vfio-pci" and override != name):
            return errno.ENODEV
        numvfs = self.paths.pci(address) / "sriov_numvfs"
        if name == "vfio-pci" and numvfs.exists() and numvfs.read_text().strip() != "0":
            return errno.EBUSY
        self.bind(address, name)
        return 0

    def _create(self, path: Path, uuid: str) -> int:
        parent = path.parents[2]
        if (mdev_devices(self.paths) / uuid).exists():
            return errno.EEXIST
        if (path.parent / "available_instances").read_text() == "0\n":
            return errno.ENOSPC
        self.make_mdev(parent.name, path.parent.name, uuid)
        return 0

    def make_mdev(self, parent: str, type_directory: str, uuid: str) -> None:
        device = self.paths.pci(parent) / uuid
        device.mkdir()
        self.text(device / "remove", "")
        self.text(device / "nvidia/vgpu_params", "")
        self.text(device / "nvidia/placement_id", "0")
        (device / "mdev_type").symlink_to(Path("../mdev_supported_types") / type_directory)
        self._join_group(device)
        (mdev_devices(self.paths) / uuid).symlink_to(device)
        self._refresh_mdev(parent)

    def begin_mdev(self, parent: str, uuid: str) -> None:
        """A device whose driver has not come back from making it: no type yet, but a ``remove`` file."""
        device = self.paths.pci(parent) / uuid
        device.mkdir()
        self.text(device / "remove", "")
        (mdev_devices(self.paths) / uuid).symlink_to(device)

    def end_mdev(self, parent: str, type_directory: str, uuid: str) -> None:
        """The driver comes back. A ``remove`` file that is gone by now stays away."""
        device = self.paths.pci(parent) / uuid
        (device / "mdev_type").symlink_to(Path("../mdev_supported_types") / type_directory)
        self._join_group(device)
        self._refresh_mdev(parent)

    def begin_type(self, vf: str, type_id: int) -> None:
        """A write of a type that hangs in the driver: a child of the agent waits in the kernel."""
        command = child_argv(self.paths.pci(vf) / "nvidia/current_vgpu_type", str(type_id))
        self.text(self.paths.proc / "77/cmdline", "\0".join(command))

    def end_type(self, vf: str, type_id: int) -> None:
        (self.paths.proc / "77/cmdline").unlink()
        self.set_type(vf, type_id)

    def _remove(self, device: Path) -> int:
        if not (device / "mdev_type").is_symlink():
            (device / "remove").unlink()
            return errno.EAGAIN
        (mdev_devices(self.paths) / device.name).unlink()
        shutil.rmtree(device)
        self._refresh_mdev(device.parent.name)
        return 0

    def _set_type(self, path: Path, value: str) -> int:
        current = path.read_text().strip()
        if (value == "0") == (current == "0"):
            return errno.EPERM
        creatable = (path.parent / "creatable_vgpu_types").read_text()
        if value != "0" and f"\n{value} " not in creatable:
            return errno.EINVAL
        self.text(path, value)
        place = path.with_name("placement_id")
        first = min(set(range(0, 48, 12)) - self._starts(place), default=0)
        self.text(place, "" if value == "0" else str(first))
        self._refresh_functions((path.parents[1] / "physfn").readlink().name)
        return 0

    def set_type(self, vf: str, type_id: int) -> None:
        """As an administrator would, past the agent."""
        assert self._write(self.paths.pci(vf) / "nvidia/current_vgpu_type", str(type_id)) == 0

    def _fitting(self, gpu: str, used: list[FakeType]) -> list[FakeType]:
        """One size per GPU."""
        return [
            k
            for k in self._types[gpu]
            if all(u.framebuffer_mib == k.framebuffer_mib for u in used) and len(used) < k.most
        ]

    def _refresh_mdev(self, gpu: str) -> None:
        by_directory = {f"nvidia-{kind.id}": kind for kind in self._types[gpu]}
        devices = [link.resolve() for link in mdev_devices(self.paths).iterdir()]
        used = [by_directory[(d / "mdev_type").readlink().name] for d in devices if d.parent.name == gpu]
        fitting = self._fitting(gpu, used)
        for directory, kind in by_directory.items():
            left = kind.most - len(used) if kind in fitting else 0
            self.text(self.paths.pci(gpu) / "mdev_supported_types" / directory / "available_instances", str(left))

    def _refresh_functions(self, gpu: str) -> None:
        by_id = {str(kind.id): kind for kind in self._types[gpu]}
        functions = [link.readlink() for link in self.paths.pci(gpu).glob("virtfn*")]
        current = {f: (f / "nvidia/current_vgpu_type").read_text().strip() for f in functions}
        fitting = self._fitting(gpu, [by_id[value] for value in current.values() if value != "0"])
        for function, value in current.items():
            lines = [f"{kind.id:<5} : {kind.name}" for kind in fitting] if value == "0" else []
            self.text(function / "nvidia/creatable_vgpu_types", "\n".join(["ID    : vGPU Name", *lines]))
