# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import islice

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.overlay import candidates, check_address, parse_subnets


@pytest.mark.parametrize("text", ["10.0.0.0/24", "100.64.0.0/16", "7.1.0.0/16", "198.18.0.0/29", "203.0.113.0/28"])
def test_any_range_will_do_that_machines_may_have(text: str) -> None:
    assert parse_subnets((text,)) == (text,)


@pytest.mark.parametrize("text", [
    "10.0.0.1/24", "10.0.0.0/8", "10.0.0.0/30", "127.0.0.0/16", "169.254.0.0/16", "0.0.0.0/16", "224.0.0.0/16",
    "fd00::/48", "10.0.0.0/024", "", "240.1.0.0/16",
])  # fmt: skip
def test_what_is_no_range_of_machines_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_subnets((text,))
    assert refused.value.code == "network.subnet_invalid"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10.0.0.1/24", "10.0.0.0/24"),
        ("fd00:88:1::5/64", "fd00:88:1::/64"),
        ("10.0.0.0", "10.88.1.0/24 or fd00:88:1::/64"),
    ],
)
def test_an_address_within_a_range_is_answered_with_the_range(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_subnets((text,))
    assert refused.value.hint == f"write it as {hint}"


def test_subnets_of_one_network_are_apart_and_few() -> None:
    with pytest.raises(Conflict):
        parse_subnets(("10.0.0.0/16", "10.0.3.0/24"))
    for several in ((), tuple(f"10.{number}.0.0/24" for number in range(9))):
        with pytest.raises(InvalidInput):
            parse_subnets(several)


def test_each_address_is_a_candidate_once_and_none_is_the_routers() -> None:
    subnets = ("10.0.0.0/29", "10.1.0.0/28")
    each = list(candidates(subnets, "vm", 0))
    assert len(set(each)) == len(each) == 5 + 13
    assert not {"10.0.0.0", "10.0.0.1", "10.0.0.7", "10.1.0.0", "10.1.0.1", "10.1.0.15"} & set(each)
    assert [check_address(address, subnets) for address in each] == each
    assert next(candidates(("10.0.0.0/16",), "a", 0)) != next(candidates(("10.0.0.0/16",), "b", 0))
    assert list(islice(candidates(subnets, "vm", 0), 3)) == each[:3]


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.1", "10.0.0.255", "10.0.1.5", "x", "fd00::1", "10.0.0.05"])
def test_an_address_that_no_vm_can_have_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_address(address, ("10.0.0.0/24",))
    assert refused.value.code == "network.address_invalid"
