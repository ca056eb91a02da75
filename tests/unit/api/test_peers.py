# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest
from starlette.requests import HTTPConnection

from orchestrator.api.peers import require_admin
from orchestrator.core.errors import Denied


def _from(client: tuple[str, int] | None) -> HTTPConnection:
    return HTTPConnection({"type": "http", "client": client, "headers": []})


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_owner_may_do_everything(uid: int) -> None:
    require_admin(_from((f"uid:{uid}", 1)))


@pytest.mark.parametrize(
    "client", [None, ("uid:12345", 1), ("uid:", 1), ("0", 1), ("127.0.0.1", 80), ("uid:0x0", 1), ("uid:00", 1)]
)
def test_nobody_else_may_do_anything(client: tuple[str, int] | None) -> None:
    with pytest.raises(Denied):
        require_admin(_from(client))
