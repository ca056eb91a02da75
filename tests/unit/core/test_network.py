# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.network import free_subnet, parse_subnet


def test_private_subnets_are_taken_in_canonical_form() -> None:
    assert parse_subnet("10.88.1.0/24", ()) == "10.88.1.0/24"
    assert parse_subnet("192.168.4.0/255.255.255.0", ()) == "192.168.4.0/24"


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1/24", "8.8.8.0/24", "10.0.0.0/8", "10.0.0.0/29", "::1/64", "10.0.0.0/24; id", "10.0.0.0/-1"]
)
def test_other_networks_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_subnet(text, ())
    assert caught.value.code == "network.subnet_invalid"


def test_subnets_do_not_overlap() -> None:
    with pytest.raises(Conflict) as caught:
        parse_subnet("10.88.0.0/23", ("10.88.1.0/24",))
    assert caught.value.code == "network.subnet_overlaps"


def test_the_first_free_subnet_is_drawn_until_there_is_none() -> None:
    assert free_subnet(("10.88.0.0/24", "10.88.2.0/24")) == "10.88.1.0/24"
    with pytest.raises(Conflict):
        free_subnet(("10.88.0.0/16",))
