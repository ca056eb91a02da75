# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.commands.web import _origin_of
from orchestrator.client.contexts import ClientContext

LOCAL = "http://vgpuctl-0123456789abcdef.localhost:4000"


def test_a_server_elsewhere_does_not_choose_what_is_opened_here() -> None:
    context = ClientContext(name="pool", url="https://pool.test:8443")
    assert _origin_of(context, "file:///etc/passwd") == "https://pool.test:8443"


@pytest.mark.parametrize("context", [None, ClientContext(name="here", state="/srv/vgpuctl")])
def test_a_server_of_this_machine_names_its_own_port(context: ClientContext | None) -> None:
    assert _origin_of(context, LOCAL) == LOCAL
