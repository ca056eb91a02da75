# SPDX-License-Identifier: Apache-2.0
"""Two lab hosts alike in one control plane, and VMs that move between them while their guests count."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.core.domain_xml.console import console_log
from tests.fakes.typed import Outcome
from tests.lab.conftest import LabHost, lab, listed
from tests.lab.enrolled import SMALLEST, words_to_add
from tests.lab.product import Product
from tests.lab.test_moves import NAMES, SPEAKS_WITHIN_S, WRITTEN

OFFERINGS: Final = """schema_version: 1
offerings:
  - {name: mdev, description: moves, kind: time_sliced, vgpu_type: GRID T4-2Q, migratable: true}
  - {name: vendor, description: moves, kind: time_sliced, vgpu_type: NVIDIA L40S-12Q, migratable: true}
  - {name: instance, description: moves, kind: mig_backed, vgpu_type: GRID A100D-1-20C, migratable: true}
"""
ENDS_WITHIN_S: Final = 900.0
_OVER: Final = frozenset({"done", "undone"})
_SOME_MOVED: Final = re.compile(r"(?!0 moved)\S+ moved, ")
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

    def begin(self, name: str, to: str, *how: str) -> str:
        """A move that goes on by itself; its operation."""
        return str(self.product.json("vm", "move", name, "--to", to, "--no-wait", *how)["operation"])

    def under_way(self, operation: str) -> None:
        """Some of the VM has reached the other host, and not all: told at once, as the rest may take but a second."""
        connection = connect_running(self.product.state)
        assert connection is not None
        with closing(connection):
            client, end, seen = Client(connection), time.monotonic() + ENDS_WITHIN_S, None
            while time.monotonic() < end:
                shown = client.operation(operation, wait_s=20, since=seen)
                if any(_SOME_MOVED.match(step["message"]) for step in shown["steps"]):
                    return
                assert shown["state"] not in _OVER, shown
                seen = shown["revision"]
        raise AssertionError(f"nothing of it is moved: {shown}")

    def ended(self, operation: str) -> str:
        """As what; its operator tries it again as long as it is stuck."""

        def ended(shown: Any) -> bool:
            if shown["state"] == "stuck":
                self.product.run("operation", "retry", operation)
            return shown["state"] in _OVER

        return str(self._until(operation, ended)["state"])

    def settled(self) -> None:
        """Both hosts answer, and nothing differs there from what the database has."""
        end = time.monotonic() + ENDS_WITHIN_S
        while (said := self.product.run("doctor").out) != "nothing differs\n":
            assert "host.unreachable" in said, said  # its agent was killed, and is not back yet
            assert time.monotonic() < end, said
            time.sleep(1)

    def _until(self, operation: str, reached: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + ENDS_WITHIN_S
        while not reached(shown := self.product.json("operation", "show", operation)):
            assert time.monotonic() < end, shown
            time.sleep(1)  # each look costs half a second of a processor that the hosts are emulated on
        return shown

    def where(self, vm: str) -> list[str]:
        """The hosts that have a domain of it, and its state there."""
        asked = f"virsh domstate {vm} 2>/dev/null || true"
        return [f"{name} {state}" for name, host in self.hosts.items() if (state := host.run(asked).strip())]


@contextmanager
def two_hosts(state: Path) -> Iterator[Site]:
    """Brought up, enrolled, and given back; ended if they were not there before."""
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/two-alike.yaml")
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
