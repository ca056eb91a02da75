# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.bridges import Uplink, check_uplink


@pytest.mark.parametrize(
    "server", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "1.2.3", "::1"]
)
def test_an_address_that_no_server_answers_from_is_no_dhcp_server(server: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_uplink(Uplink(bridge="br0"), ("192.0.2.1", server))
    assert refused.value.code == "network.dhcp_server_invalid"


@pytest.mark.parametrize("server", ["192.0.2.1", "10.0.0.1", "169.254.1.1", "100.64.0.1"])
def test_a_dhcp_server_may_be_at_a_private_or_a_shared_address(server: str) -> None:
    check_uplink(Uplink(bridge="br0", vlan=7), (server,))
