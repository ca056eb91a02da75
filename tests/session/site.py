# SPDX-License-Identifier: Apache-2.0
"""Where a session takes place: simulated hosts behind a real server, or a site that runs already."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.certificate import new_certificate
from tests.fakes.running import running_server

FLEET: Final = """\
groups:
  - {name: gpu, count: 2, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""


@dataclass(frozen=True)
class Site:
    """``state``: of its server; ``certificate``: of whom its clients elsewhere are to trust."""

    state: Path
    url: str
    certificate: Path
    host: str = "gpu-0"
    vgpu_type: str = "GRID T4-8Q"
    image: str = "demo"

    def filled(self, text: str) -> str:
        """With what is the site's."""
        return text.format(url=self.url, host=self.host, vgpu_type=self.vgpu_type, image=self.image)


@contextmanager
def simulated_site(directory: Path) -> Iterator[Site]:
    """Two hosts with two Tesla T4 each, for as long as it is open."""
    certificate, key = new_certificate(directory)
    fleet = directory / "fleet.yaml"
    fleet.write_text(FLEET)
    port = free_port()
    over_tls = ("--listen", f"127.0.0.1:{port}", "--tls-cert", str(certificate), "--tls-key", str(key))
    state = directory / "state"
    with running_server(state, "--simulate", str(fleet), *over_tls, module="orchestrator.serve"):
        yield Site(state=state, url=f"https://127.0.0.1:{port}", certificate=certificate)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
