# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm move`` of VMs that run, between two lab hosts: what their guests keep in memory and in their vGPUs goes
along, and a move that fails leaves them where they are."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from orchestrator.core.domain_xml.console import console_log
from tests.fakes.typed import Outcome
from tests.lab.conftest import LabHost, lab, listed
from tests.lab.enrolled import SMALLEST, words_to_add
from tests.lab.product import Product
from tests.lab.test_moves import NAMES, SPEAKS_WITHIN_S, WRITTEN

pytestmark = pytest.mark.lab

OFFERINGS: Final = """schema_version: 1
offerings:
  - {name: mdev, description: moves, kind: time_sliced, vgpu_type: GRID T4-2Q, migratable: true}
  - {name: vendor, description: moves, kind: time_sliced, vgpu_type: NVIDIA L40S-12Q, migratable: true}
"""
_COUNTED: Final = re.compile(r"^([0-9a-f]{8}) ([0-9a-f]{8})$", re.MULTILINE)


@dataclass(frozen=True)
class Site:
    """Both hosts in one control plane."""

    product: Product
    hosts: dict[str, LabHost]

    def start(self, offering: str) -> str:
        """A VM of it on the source, whose guest counts; its id."""
        words = ("--profile", offering, "--host", "source", "--image", "counting", *SMALLEST)
        self.product.ok("create-vm", offering, *words)
        return str(self.product.json("show-vm", offering)["id"])

    def count(self, name: str, more: int = 2) -> int:
        """It goes on counting where it is, and its register reads as it was written; how far it is."""
        vm = self.product.json("show-vm", name)
        assert vm["state"] == "running"
        end, first = time.monotonic() + SPEAKS_WITHIN_S, None
        while True:
            log = self.hosts[vm["host"]].run(f"tr -d '\\r' <{console_log(vm['id'])} || true")
            counted = [(int(number, 16), register) for number, register in _COUNTED.findall(log)]
            assert {register for _, register in counted[1:]} <= {WRITTEN}, log
            first = counted[-1][0] if counted and first is None else first
            if counted and first is not None and counted[-1][0] >= first + more:
                return counted[-1][0]
            assert time.monotonic() < end, log
            time.sleep(1)

    def move(self, name: str, to: str) -> Outcome:
        """Once its host was observed with what the driver says of its vGPU."""
        self.product.run("doctor")
        moved = self.product.run("vm", "move", name, "--to", to, limit_s=600)
        assert "vm.stays" not in moved.err, moved.err
        return moved

    def where(self, vm: str) -> list[str]:
        """The hosts that have a domain of it, and its state there."""
        asked = f"virsh domstate {vm} 2>/dev/null || true"
        return [f"{name} {state}" for name, host in self.hosts.items() if (state := host.run(asked).strip())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/two-alike.yaml")
    state = tmp_path_factory.mktemp("site")
    product = Product(state, {"VGPUCTL_VCPU_OVERCOMMIT": "32", "VGPUCTL_GUEST_SEEN_SECONDS": "0"})
    try:
        hosts = {name: listed()[name] for name in NAMES}
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(lambda host: product.ok(*words_to_add(host), limit_s=900), hosts.values()))
        product.ok("image", "add", "counting", lab("guest-image", "--counting").strip())
        (state / "offerings.yaml").write_text(OFFERINGS)
        product.ok("profile", "add", str(state / "offerings.yaml"))
        yield Site(product, hosts)
        for vm in product.json("list-vms"):
            product.ok("delete-vm", str(vm["name"]))
        for name in NAMES:
            product.ok("host", "remove", name)
    finally:
        product.close()
        if ended := [name for name in NAMES if name not in before]:
            lab("down", *ended)


@pytest.mark.parametrize("offering", ["mdev", "vendor"])
def test_a_vm_moves_while_it_runs_and_its_guest_goes_on(site: Site, offering: str) -> None:
    vm = site.start(offering)
    counted = site.count(offering)
    moved = site.move(offering, "target")
    assert moved.code == 0, moved.err
    assert site.where(vm) == ["target running"]
    assert site.product.json("show-vm", offering)["host"] == "target"
    assert site.count(offering) > counted
    assert [site.hosts["source"].run(f"ls /var/lib/vgpuctl-agent/{kind}") for kind in ("volumes", "seeds")] == ["", ""]


def test_a_move_that_the_device_refuses_leaves_it_where_it_is(site: Site) -> None:
    vm = site.product.json("show-vm", "mdev")["id"]
    for host, phase in (("target", "stop-copy"), ("source", "load")):
        lab("fault", host, "0", "fault_create", phase)
        refused = site.move("mdev", "source")
        assert refused.code != 0, phase
        assert site.where(vm) == ["target running"], phase
    site.count("mdev")
    listening = site.hosts["source"].run("ss -Hltn 'sport >= 49152 and sport <= 49215'")
    assert listening == ""
    assert site.move("mdev", "source").code == 0
    assert site.where(vm) == ["source running"]
    site.count("mdev")
