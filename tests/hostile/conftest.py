# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.contract.api.conftest import sender
from tests.fakes.running import running_server
from tests.hostile.site import HOST, VM, Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    state = tmp_path_factory.mktemp("site")
    with running_server(state, module="tests.contract.api.plane_server", timeout_s=300):
        made = Site(state, sender(state))
        _done(made, made.send("POST", "/v1/hosts", HOST | {"name": "t4", "address": "t4.test",
                                                           "fingerprint": "SHA256:t4.test"}).json())  # fmt: skip
        _done(made, made.send("POST", "/v1/vms", VM | {"name": "there"}).json())
        yield made


def _done(site: Site, started: dict[str, str]) -> None:
    deadline = time.monotonic() + 60
    while site.send("GET", f"/v1/operations/{started['operation']}?wait=5").json()["state"] != "done":
        assert time.monotonic() < deadline
