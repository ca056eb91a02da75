# SPDX-License-Identifier: Apache-2.0
"""Hosts in any order and of any filter, page by page, by each database: as Python orders and picks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from orchestrator.core.hosts.host import Host, HostState
from orchestrator.core.labels import parse_selector, selects
from orchestrator.store.database import Store
from orchestrator.store.pages import HOST_ORDERS
from tests.contract.store.test_store import host

_STATES: Final[tuple[HostState, ...]] = ("ready", "unreachable", "ready")
_RACKS: Final[tuple[tuple[tuple[str, str], ...], ...]] = (
    (("example.org/Rack", "3"),), (("example.org/Rack", "4"), ("spare", "")), (),
)  # fmt: skip
HOSTS: Final = tuple(
    replace(
        host(), name=f"pool-{number}", address=f"192.0.2.{9 - number}", state=_STATES[number % 3],
        cordoned=number % 2 == 0, labels=_RACKS[number % 3], last_seen_at=None if number % 4 == 0 else 1e9 / number,
        managed_gpus=tuple(f"0000:{bus}1:00.0" for bus in range(number % 3)),
    )
    for number in range(7)
)  # fmt: skip
_VALUES: Final[dict[str, Callable[[Host], Any]]] = {
    "name": lambda one: one.name,
    "state": lambda one: one.state,
    "address": lambda one: one.address,
    "cordoned": lambda one: one.cordoned,
    "gpus": lambda one: len(one.managed_gpus),
    "last_seen_at": lambda one: one.last_seen_at or 0.0,
}


@pytest.fixture
def pool(store: Store) -> Store:
    with store.begin() as tx:
        tx.hosts.remove(host().name)
        for one in HOSTS:
            tx.hosts.add(one)
    return store


def _paged(store: Store, selector: str = "", state: Any = None, sort: str = "name") -> list[str]:
    """Two at a time."""
    names, after = list[str](), None
    terms = parse_selector(selector) if selector else ()
    with store.read() as tx:
        while page := tx.host_pages.names(terms, state, sort, after, 2):
            names += [name for name, _ in page]
            after = page[-1][1], page[-1][0]
        assert tx.host_pages.how_many(terms, state) == len(names)
    return names


def test_pages_follow_each_other_in_each_order(pool: Store) -> None:
    assert sorted(_VALUES) == sorted(HOST_ORDERS)
    for sort, value in _VALUES.items():
        keyed = sorted((value(one), one.name) for one in HOSTS)
        ordered = [name for _, name in keyed]
        assert _paged(pool, sort=sort) == ordered, sort
        assert _paged(pool, sort=f"-{sort}") == ordered[::-1], sort


def test_labels_and_states_pick_as_selectors_do_elsewhere(pool: Store) -> None:
    for text in ("example.org/Rack=3", "example.org/Rack!=3", "spare", "!spare", "spare=", "example.org/Rack,!spare"):
        terms = parse_selector(text)
        assert _paged(pool, text) == [one.name for one in HOSTS if selects(terms, one.labels)] != [], text
    assert _paged(pool, state="unreachable") == [one.name for one in HOSTS if one.state == "unreachable"] != []
    assert _paged(pool, "!spare", "cordoned", "-name") == [
        one.name for one in reversed(HOSTS) if one.cordoned and one.labels != _RACKS[1]
    ]  # fmt: skip
