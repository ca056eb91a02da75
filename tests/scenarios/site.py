# SPDX-License-Identifier: Apache-2.0
"""A control plane with one GPU of one host, which is in memory or a lab host: what a scenario is written for, once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.main import run
from tests.fakes.simulated import serving_fleet
from tests.fakes.typed import Outcome
from tests.lab.enrolled import SMALLEST, VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts
from tests.lab.product import Product

LAB = pytest.param("lab", marks=pytest.mark.lab)
BOTH = ("memory", LAB)
"""Parameters of a fixture that opens a site."""
L40S = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 1, vcpus: 32, memory_gib: 128}
"""


class InProcess(Product):
    """The command, called in this process: a hundred of them take no longer than two processes."""

    def run(self, *args: str, limit_s: float = 400) -> Outcome:
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in self.environment.keys() - os.environ.keys() | {"VGPUCTL_STATE"}:
                patch.setenv(name, self.environment[name])
            code = run(list(args))
        return Outcome(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Site:
    """``gpu``: its address on the host ``name``. ``lab``: None, the host is in memory."""

    product: Product
    name: str
    gpu: str
    lab: Enrolled | None

    def create(self, profile: str, *vms: str) -> None:
        for vm in vms:
            self.product.ok(*self._asking(vm, profile))

    def delete(self, *vms: str) -> None:
        for vm in vms:
            self.product.ok("delete-vm", vm)

    def refused(self, profile: str, code: str) -> str:
        """What is said to who asks for one more; explain must say the same."""
        asked = self.product.run("explain", "--profile", profile, *self._size, "-o", "json").json()
        assert (asked["fits"], code in {one["code"] for one in asked["reasons"]}) == (False, True), asked
        said = self.product.refused(8, *self._asking("more", profile)).err
        assert code in said
        return said

    def fits(self, profile: str) -> int:
        (row,) = self.product.json("capacity", "--profile", profile, *self._size)
        return int(row["fits_now"])

    def shown(self) -> dict[str, Any]:
        """The GPU as the host tells it now, with which nothing is wrong."""
        assert self.product.json("doctor") == []
        found: dict[str, Any] = self.product.json("gpu", "show", self.name, self.gpu)
        return found

    def slots(self) -> dict[str, tuple[int, int]]:
        """VM → its first slot and the one behind its last, as the map draws them."""
        assert self.product.json("doctor") == []
        gpu = next(row for row in self.product.json("gpu", "map") if row["gpu"] == self.gpu)
        found = {one["vm"]: (one["start"], one["start"] + one["size"]) for one in gpu["cells"] if one["vm"]}
        if self.lab is not None:
            files = f"/sys/bus/pci/devices/{self.gpu}/virtfn*/nvidia/placement_id"
            lie = self.lab.shell(f"cat {files} 2>/dev/null || true").split()
            assert sorted(map(int, lie)) == sorted(start for start, _ in found.values())
        return found

    def driver(self, key: str) -> str | None:
        """A setting of the GPU as the lab's driver keeps it; None: nobody but the product reads one in memory."""
        if self.lab is None:
            return None
        state = self.lab.shell(f"cat $(grep -l '^bdf {self.gpu}$' /sys/kernel/vgpu_lab/gpus/*/state)")
        return next(line.partition(" ")[2] for line in state.splitlines() if line.startswith(f"{key} "))

    def left(self) -> object:
        """What VMs leave behind when something went wrong."""
        if self.lab is not None:
            return facts(self.lab.shell)
        return self.product.json("gpu", "map"), self.product.json("list-vms")

    def running_since(self, vm: str) -> str:
        """Another after a restart, on a lab host."""
        if self.lab is not None:
            return self.lab.running_since(vm)
        return str(self.product.json("show-vm", vm)["state"])

    def check_guest(self, vm: str) -> None:
        """It sees its vGPU when it boots; nothing boots in memory."""
        if self.lab is not None:
            assert self.lab.guest_pci_id in self.lab.guest_says(vm)

    def hard_reset(self, *running: str) -> None:
        """Of a lab host, with no controller; these VMs come back."""
        assert self.lab is not None
        self.lab.restored_after_a_hard_reset(*running)

    def clear(self) -> None:
        self.delete(*(str(vm["name"]) for vm in self.product.json("list-vms")))

    @property
    def _size(self) -> tuple[str, ...]:
        return SMALLEST if self.lab is not None else ("--vcpus", "1", "--memory", "64MiB", "--disk", "1GiB")

    def _asking(self, vm: str, profile: str) -> tuple[str, ...]:
        image = "demo" if self.lab is None else "guest"
        return ("create-vm", vm, "--profile", profile, "--image", image, *self._size)


@contextmanager
def site_with_l40s(where: str, directory: Path, profile: str, offerings: str) -> Iterator[Site]:
    """``offerings``: a file of them, for these tests alone; ``profile``: the one that most VMs have."""
    if where == "lab":
        kind = replace(VENDOR_VFIO, profile=profile, smallest=True)
        with enrol_alone(kind, directory, offerings) as one:
            yield Site(one.product, one.name, one.gpu, one)
        return
    with serving_fleet(directory, L40S) as client:
        (gpu,) = client.gpus()
        product = InProcess(directory / "state", {"NO_COLOR": "1"})
        file = directory / "offerings.yaml"
        file.write_text(offerings)
        product.ok("profile", "add", str(file))
        yield Site(product, gpu["host"], gpu["address"], None)
