# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.agent.libvirt.leases import Lease, fresh

OLD = ("192.168.122.7", 1000)


@pytest.mark.parametrize(
    ("leases", "addresses"),
    [
        ([OLD], ()),
        ([("192.168.122.7", 1042)], ("192.168.122.7",)),
        ([OLD, ("192.168.122.9", 1042)], ("192.168.122.9",)),
        ([("192.168.122.7", 0)], ("192.168.122.7",)),
        ([], ()),
    ],
)
def test_a_lease_from_before_the_start_is_not_the_guests_address(
    leases: list[Lease], addresses: tuple[str, ...]
) -> None:
    assert fresh(leases, frozenset({OLD})) == addresses
