# SPDX-License-Identifier: Apache-2.0
"""A server with simulated hosts as the steps of integrations/isvctl find one: TLS, a token, an OIDC provider."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.fakes.certificate import over_tls
from tests.fakes.oidc_provider import CLIENT, oidc_provider
from tests.fakes.running import client_of, running_server
from tests.fakes.several import SERVE, simulated_hosts
from tests.integrations.ovn import ovn_of_simulated_hosts

FLEET: Final = """\
groups:
  - {name: t4, count: 2, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 64, memory_gib: 256}
  - {name: l40s, count: 3, gpu_model: L40S, gpus_per_host: 4, vcpus: 128, memory_gib: 1024}
  - {name: hgx, count: 1, gpu_model: H100 SXM5 80GB, gpus_per_host: 8, vcpus: 192, memory_gib: 2048}
"""
SITE: Final = (
    "a server with simulated hosts (two with T4, three with L40S, one HGX H100), OVN's own databases and ovn-northd, "
    "which says by ovn-trace what becomes of packets, and an OIDC provider"
)
PROFILE: Final = "GRID T4-4Q"
BOARD: Final = "gpu:2"
"""A request that only the baseboard takes: two whole GPUs."""


@contextmanager
def simulated_site(directory: Path) -> Iterator[dict[str, str]]:
    """The environment of a step, while a server with simulated hosts runs. Everything lies in ``directory``."""
    directory.mkdir(mode=0o700, exist_ok=True)
    own = {"ISV_IMAGE": "demo", "ISV_PROFILE": PROFILE, "ISV_BOARD_PROFILE": BOARD}
    with (
        simulated_hosts(directory, FLEET) as hosts,
        ovn_of_simulated_hosts(directory / "ovn") as ovn,
        served(directory, "--simulate", str(hosts), **ovn) as environment,
    ):
        yield environment | own


@contextmanager
def served(directory: Path, *options: str, **more: object) -> Iterator[dict[str, str]]:
    """A server on loopback with an identity provider: what steps know of it. ``more``: settings."""
    state, work = directory / "state", directory / "work"
    for made in (state, work):
        made.mkdir(mode=0o700, parents=True)
    tls = over_tls(directory)
    trusted = directory / "trusted.pem"
    trusted.write_bytes(tls.certificate.read_bytes())
    with oidc_provider() as provider:
        settings = {
            "oidc_issuer": provider.issuer, "oidc_client_id": CLIENT, "oidc_required_amr": ["mfa"],
            "refresh_seconds": 1.0, **more,
        }  # fmt: skip
        (state / "config.yaml").write_text(yaml.safe_dump(settings))
        _private(work / "oidc.json", json.dumps(provider.key.as_dict(private=True)))
        with running_server(state, *options, *tls.words, module=SERVE):
            _private(work / "admin.token", client_of(state).create_token({"tenant": "*", "role": "admin"})["token"])
            yield {
                "ISV_URL": tls.url, "ISV_CA_FILE": str(trusted), "ISV_TOKEN_FILE": str(work / "admin.token"),
                "ISV_WORK": str(work), "ISV_TLS_CERT": str(tls.certificate), "ISV_TLS_KEY": str(tls.key),
                "ISV_OIDC_ISSUER": provider.issuer, "ISV_OIDC_AUDIENCE": CLIENT,
                "ISV_OIDC_KEY": str(work / "oidc.json"),
            }  # fmt: skip


def _private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
