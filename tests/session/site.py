# SPDX-License-Identifier: Apache-2.0
"""Where a session takes place: a real server, with simulated hosts unless it is given others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.core.units import MIB, show_size
from tests.fakes.certificate import over_tls
from tests.fakes.running import running_server
from tests.fakes.several import SERVE

FLEET: Final = """\
groups:
  - {name: gpu, count: 2, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""


@dataclass(frozen=True)
class Size:
    """Of the VMs that are made."""

    vcpus: int
    memory_mib: int
    disk_mib: int

    @property
    def options(self) -> str:
        memory, disk = show_size(self.memory_mib * MIB), show_size(self.disk_mib * MIB)
        return f"--vcpus {self.vcpus} --memory {memory} --disk {disk}"


@dataclass(frozen=True)
class Site:
    """``state``: of its server; ``certificate``: of whom its clients elsewhere are to trust; ``files``: what lies in
    the operator's directory, by name."""

    state: Path
    url: str
    certificate: Path
    host: str = "gpu-0"
    vgpu_type: str = "GRID T4-8Q"
    image: str = "demo"
    size: Size = Size(vcpus=2, memory_mib=1024, disk_mib=5120)
    files: dict[str, Path] = field(default_factory=dict)

    def filled(self, text: str) -> str:
        """With what is the site's."""
        own = {name: getattr(self, name) for name in ("url", "host", "vgpu_type", "image", "size")}
        return text.format(**own)


@contextmanager
def simulated_site(directory: Path) -> Iterator[Site]:
    """Two hosts with two Tesla T4 each, for as long as it is open."""
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    with site_over_tls(directory, "--simulate", str(fleet)) as site:
        yield site


@contextmanager
def site_over_tls(directory: Path, *options: str) -> Iterator[Site]:
    """A server of its own; it has the hosts that the options give it."""
    tls, state = over_tls(directory), directory / "state"
    with running_server(state, *options, *tls.words, module=SERVE):
        yield Site(state=state, url=tls.url, certificate=tls.certificate)
