# SPDX-License-Identifier: Apache-2.0
"""A server with one lab host, whose guests boot: what simulated ones do not show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from integrations.isvctl.site import Site
from orchestrator.client.content import open_content
from tests.integrations.simulated import BOARD, served
from tests.lab.conftest import lab, listed

IMAGE: Final = "guest"
SMALL: Final = {"ISV_MEMORY_MIB": "192", "ISV_DISK_GIB": "1"}
"""What a guest of the lab is content with."""


@contextmanager
def lab_site(directory: Path, name: str) -> Iterator[dict[str, str]]:
    """The environment of a step, while a server has this host, which runs already and is given back at the end."""
    hosts = listed()
    if name not in hosts:
        sys.exit(f"error: no lab host {name} runs; 'make lab-up' starts one, 'make lab-status' lists them")
    host = hosts[name]
    own = {"ISV_IMAGE": IMAGE, "ISV_PROFILE": "", "ISV_BOARD_PROFILE": BOARD, "ISV_GUESTS": "real"}
    with served(directory) as environment:
        environment |= {**own, **SMALL, "ISV_GUEST_USER": "root"}
        client = Site.of(environment).admin
        wanted = {
            "name": host.name, "address": host.address, "port": host.port, "user": host.user,
            "provisioning_key": Path(host.key_file).read_text(), "fingerprint": host.host_key_fingerprint,
        }  # fmt: skip
        client.wait(client.add_host(wanted))
        client.change_host(host.name, {"vcpu_overcommit": 32})  # an emulated host has one processor
        with open_content(lab("guest-image").strip()) as content:
            client.upload_image(IMAGE, content)
        try:
            yield environment | {"ISV_PROFILE": _smallest(Site.of(environment))}
        finally:
            client.wait(client.remove_host(host.name))


def _smallest(site: Site) -> str:
    """The type of time-sliced vGPU of which the host takes most."""
    sizes = {
        one["name"]: one["framebuffer_mib"]
        for one in site.admin.profiles()
        if one["kind"] == "time_sliced" and one["available"] and one["framebuffer_mib"]
    }
    return min(sizes, key=lambda name: (sizes[name], name))
