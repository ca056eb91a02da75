# SPDX-License-Identifier: Apache-2.0
"""A control plane with one host, which is in memory or a lab host: what a scenario is written for, once."""

from __future__ import annotations

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
from tests.lab.enrolled import SMALLEST, VENDOR_VFIO, Enrolled, Kind, enrol_alone
from tests.lab.host_facts import facts
from tests.lab.product import Product

LAB = pytest.param("lab", marks=pytest.mark.lab)
BOTH = ("memory", LAB)
"""Parameters of a fixture that opens a site."""
ONE_L40S = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 1, vcpus: 32, memory_gib: 128}
"""
ON_L40S = replace(VENDOR_VFIO, smallest=True)
"""The same on a lab host."""


class InProcess(Product):
    """The command, called in this process, which has loaded it already."""

    def run(self, *args: str, limit_s: float = 400) -> Outcome:
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("VGPUCTL_STATE", str(self.state))
            patch.delenv("COLUMNS", raising=False)
            code = run(list(args))
        return Outcome(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Site:
    """``gpu``: the address of the first one on the host ``name``. ``lab``: None, the host is in memory."""

    product: Product
    name: str
    gpu: str
    lab: Enrolled | None

    def create(self, profile: str, *vms: str, more: tuple[str, ...] = ()) -> None:
        """``more``: options."""
        for vm in vms:
            self.product.ok(*self._asking(vm, profile), *more)

    def delete(self, *vms: str) -> None:
        for vm in vms:
            self.product.ok("delete-vm", vm)

    def refused(self, profile: str, code: str, *more: str) -> str:
        """What is said to who asks for one more, with options; explain must say the same."""
        asked = self.product.run("explain", "--profile", profile, *self._size, "-o", "json").json()
        assert (asked["fits"], code in {one["code"] for one in asked["reasons"]}) == (False, True), asked
        said = self.product.refused(8, *self._asking("more", profile), *more).err
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
        return self.product.map(), self.product.json("list-vms")

    def running_since(self, vm: str) -> str:
        """Another after a restart, on a lab host."""
        if self.lab is not None:
            return self.lab.running_since(vm)
        return str(self.product.json("show-vm", vm)["state"])

    def check_guest(self, vm: str, devices: int | None = None) -> None:
        """It sees so many when it boots, or some; nothing boots in memory."""
        if self.lab is not None:
            seen = self.lab.guest_says(vm).count(self.lab.guest_pci_id)
            assert seen == devices if devices is not None else seen

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
def site_on(where: str, directory: Path, kind: Kind, fleet: str, offerings: str = "") -> Iterator[Site]:
    """``kind``: of the lab host; ``fleet``: the same in memory; ``offerings``: a file of them, for this site alone."""
    if where == "lab":
        with enrol_alone(kind, directory, offerings) as one:
            yield Site(one.product, one.name, one.gpu, one)
        return
    with serving_fleet(directory, fleet) as client:
        gpu = client.gpus()[0]
        product = InProcess(directory / "state")
        if offerings:
            (directory / "offerings.yaml").write_text(offerings)
            product.ok("profile", "add", str(directory / "offerings.yaml"))
        yield Site(product, gpu["host"], gpu["address"], None)
