# SPDX-License-Identifier: Apache-2.0
"""The site that the pages are about: simulated hosts behind a real server, two of them gone for ever."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from orchestrator.client.client import Client
from orchestrator.client.content import open_content
from orchestrator.core.units import GIB, MIB
from tests.fakes.certificate import over_tls
from tests.fakes.driver_files import Signer, run_file, signed
from tests.fakes.running import client_of, running_server
from tests.fakes.several import SERVE, simulated_hosts, until
from tests.pages.blocks import blocks
from tests.pages.table import GUEST_DRIVER, KVM

PAGES: Final = Path(__file__).parents[2] / "docs"
GROUP: Final = {"vcpus": 64, "memory_gib": 256, "gpus_per_host": 2, "driver": "580.65.05", "pools": ["fast"]}
MORE: Final = [
    {"name": "gpu", "count": 7, "gpu_model": "Tesla T4", **GROUP},
    {"name": "a100", "count": 1, "gpu_model": "A100 PCIe 80GB", **GROUP, "modes_allowed": ["mig", "passthrough"]},
]
"""Beside the hosts of the page that tells how hosts are simulated."""
GONE: Final = {"name": "gpu", "count": 9}
"""``gpu-7`` and ``gpu-8`` burn down."""
DRIVERS: Final = (*map(KVM.format, ("580.65.05", "580.82.02", "580.95.02")), GUEST_DRIVER)


@dataclass(frozen=True)
class Site:
    """``files``: what the site's people have: ``pool.pem``, drivers with their signatures, an image."""

    state: Path
    url: str
    files: Path

    def client(self) -> Client:
        return client_of(self.state)

    @property
    def digest(self) -> str:
        """Of a driver that is locked."""
        return hashlib.sha256((self.files / f"{KVM.format('580.82.02')}.run").read_bytes()).hexdigest()

    @property
    def operation(self) -> str:
        """The newest one."""
        return str(self.client().operations(limit=1)[0]["id"])

    @property
    def backup(self) -> str:
        """The newest one."""
        return str(self.client().backups(None)[-1]["id"])


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    """As the pages find it."""
    files, state = directory / "files", directory / "state"
    for one in (files, state):
        one.mkdir(parents=True)
    tls = over_tls(directory)
    (files / "pool.pem").write_bytes(tls.certificate.read_bytes())
    (files / "debian-13.raw").write_bytes(bytes(510) + b"\x55\xaa" + bytes(MIB - 512))  # an MBR
    for name in DRIVERS:
        signed(files, run_file(name), _SIGNER, f"{name}.run")
    (state / "config.yaml").write_text(yaml.safe_dump({"refresh_seconds": 1.0, "guest_seen_seconds": 60.0}))
    made = Site(state, tls.url, files)
    for more, then in (([*MORE[1:], MORE[0] | GONE], _prepare), (MORE, _wait)):
        with (
            _hosts(directory, more) as hosts,
            running_server(state, "--simulate", str(hosts), *tls.words, module=SERVE),
        ):
            then(made)
            if more is MORE:
                yield made


_SIGNER: Final = Signer()


def _wait(made: Site) -> None:
    """Until it is known that two hosts are gone. There is one image, so that nobody has to choose."""
    made.client().remove_image("demo")
    until(lambda: {"gpu-7", "gpu-8"} <= {host["name"] for host in made.client().hosts() if host["state"] != "ready"})


def _hosts(directory: Path, more: list[dict[str, object]]) -> AbstractContextManager[Path]:
    shown = next(text for kind, text in blocks(PAGES / "howto/try-without-hardware.md") if kind == "yaml")
    fleet = json.dumps({"groups": [*yaml.safe_load(shown)["groups"], *more]})  # YAML without aliases
    return simulated_hosts(directory, fleet)


def _prepare(made: Site) -> None:
    """An image, the drivers, and a VM on each host that will be gone."""
    client = made.client()
    with open_content(made.files / "debian-13.raw") as content:
        client.upload_image("debian-13", content, "raw")
    wanted = {"name": "train", "profile": "t4-4q", "image": "debian-13", "memory_mib": 1024, "disk_bytes": GIB}
    for host, tenant in (("gpu-7", "a-host-died"), ("gpu-8", "give-up-a-host")):
        client.create_tenant(tenant)
        client.wait(client.create_vm({**wanted, "tenant": tenant, "host": host}), timeout_s=300)
