# SPDX-License-Identifier: Apache-2.0
"""Three lab hosts in one control plane, with the bundles of two drivers and a VM that runs on each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.lab.conftest import LabHost, lab, listed
from tests.lab.drivers import PROVISIONED_WITHIN_S, bring, loaded
from tests.lab.enrolled import MDEV, SMALLEST, words_to_add
from tests.lab.product import Product

NAMES: Final = ("one", "three", "two")
"""In the order in which an upgrade takes them."""
FIRST: Final = "550.163.02"
"""The driver of the lab's image."""
SECOND: Final = "570.172.08"
_SETTINGS: Final = {"VGPUCTL_VCPU_OVERCOMMIT": "32", "VGPUCTL_GUEST_SEEN_SECONDS": "0"}
_OVER: Final = frozenset({"cancelled", "done", "halted"})


@dataclass(frozen=True)
class ThreeHosts:
    """``hosts``: by name. Their VMs are called ``on-`` and the host."""

    product: Product
    hosts: dict[str, LabHost]

    def vms(self) -> dict[str, tuple[Any, ...]]:
        """Where each VM is, whether it runs, and which devices it has."""
        shown = [self.product.json("show-vm", f"on-{name}") for name in NAMES]
        return {vm["name"]: (vm["host"], vm["state"], vm["devices"]) for vm in shown}

    def drivers(self) -> dict[str, tuple[str | None, str | None]]:
        """What each host's kernel says, and what NVML does."""
        seen = {name: self.product.json("host", "show", name)["software"]["nvidia_driver"] for name in NAMES}
        return {name: (loaded(host), seen[name]) for name, host in self.hosts.items()}

    def cordoned(self) -> list[str]:
        """Their names."""
        return [name for name in NAMES if self.product.json("host", "show", name)["cordoned"]]

    def begin(self, version: str, *options: str) -> None:
        """An upgrade that goes on by itself."""
        self.product.ok("driver", "upgrade", "--to", version, "--no-wait", *options)

    def phases(self) -> dict[str, str]:
        """Of the upgrade, by host."""
        return {one["host"]: one["phase"] for one in self.upgrade()["hosts"]}

    def upgrade(self) -> Any:
        """The newest."""
        return self.product.json("maintenance", "show")

    def until(self, there: Callable[[dict[str, str]], bool]) -> None:
        """The phases are so."""
        end = time.monotonic() + PROVISIONED_WITHIN_S
        while not there(phases := self.phases()):
            assert time.monotonic() < end, phases
            time.sleep(1)

    def ended(self) -> Any:
        """The upgrade once nothing of it goes on by itself any more."""
        end = time.monotonic() + PROVISIONED_WITHIN_S
        while (upgrade := self.upgrade())["state"] not in _OVER:
            assert time.monotonic() < end, upgrade
            time.sleep(1)
        return upgrade

    def each(self, words: Callable[[LabHost], Sequence[str]]) -> None:
        """A command for each host, all at once."""
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            commands = [tuple(words(host)) for host in self.hosts.values()]
            list(pool.map(lambda command: self.product.ok(*command, limit_s=PROVISIONED_WITHIN_S), commands))


@contextmanager
def three_hosts(state: Path, bundles: Path) -> Iterator[ThreeHosts]:
    """Brought up, enrolled, and given back; ended if they were not there before."""
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/three.yaml")
    product = Product(state, _SETTINGS)
    try:
        product.ok("image", "add", "guest", lab("guest-image", "--smallest").strip())
        for version in (FIRST, SECOND):
            bring(product, bundles, version)
        site = ThreeHosts(product, {name: listed()[name] for name in NAMES})
        site.each(words_to_add)
        site.each(
            lambda host: (
                "create-vm", f"on-{host.name}", "--profile", MDEV.profile, "--host", host.name, "--image", "guest",
                *SMALLEST,
            )
        )  # fmt: skip
        yield site
        site.each(lambda host: ("delete-vm", f"on-{host.name}"))
        site.each(lambda host: ("host", "remove", host.name))
    finally:
        product.close()
        if ended := [name for name in NAMES if name not in before]:
            lab("down", *ended)
