# SPDX-License-Identifier: Apache-2.0
"""Rows of networks and cards, written into OVN's own northbound database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.errors import Retryable
from orchestrator.core.northbound.networks import TABLES, Card, card_rows, network_rows, rows_of
from orchestrator.core.northbound.rows import OvnRow, RowChange, difference, left_over, removal
from orchestrator.core.overlay import OvnNetwork, port_id
from orchestrator.core.vms.network import Network
from tests.fakes.ovn_databases import RealOvn, real_ovn

SITE = "site-1"
BLUE = Network(name="acme.blue")
OVERLAY = OvnNetwork(id="0f1d8f4e-0000-4000-8000-000000000001", subnets=("10.0.0.0/24", "203.0.113.0/28"))
WEB = Card(vm="vm-1", name="web", number=0, addresses=("10.0.0.5",), hosts=("gpu-1",))
DB = Card(vm="vm-2", name="db", number=1, addresses=("203.0.113.2",), hosts=("gpu-2",))


def _northbound(ovn: RealOvn) -> OvnNorthbound:
    return OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)


def _rows(*cards: Card) -> tuple[OvnRow, ...]:
    return tuple(rows_of([(BLUE, OVERLAY, cards)], {}))


def _compare(ovn: RealOvn, rows: tuple[OvnRow, ...]) -> tuple[RowChange, ...]:
    """Whole, as a round of comparison does; what differs is written."""
    with _northbound(ovn).open() as session:
        existing = session.read_all(SITE, TABLES)
        changes = (*difference(rows, existing, SITE), *left_over(rows, existing, SITE))
        session.change(tuple(chain.from_iterable(change.operations for change in changes)))
    return changes


def _add(ovn: RealOvn, card: Card) -> None:
    """One card alone, as the step of an operation does."""
    rows = (*network_rows(BLUE, OVERLAY), *card_rows(BLUE, OVERLAY, card))
    with _northbound(ovn).open() as session:
        changes = difference(rows, session.read(rows), SITE)
        session.change(tuple(chain.from_iterable(change.operations for change in changes)))


def _get(ovn: RealOvn, table: str, record: str, column: str) -> str:
    return ovn.nbctl("get", table, record, column).strip()


def test_a_network_and_its_cards_are_written_and_then_nothing_differs(ovn: RealOvn) -> None:
    rows = _rows(WEB, DB)
    assert len(_compare(ovn, rows)) == len(rows)
    assert _compare(ovn, rows) == ()
    port = port_id("vm-1", 0)
    assert _get(ovn, "logical_switch_port", port, "port_security").endswith('10.0.0.5"]')
    assert _get(ovn, "logical_switch_port", port, "options") == "{requested-chassis=gpu-1}"
    dhcp = ovn.nbctl("dhcp-options-get-options", _get(ovn, "logical_switch_port", port, "dhcpv4_options"))
    assert {"mtu=1442", "server_id=10.0.0.1", "dns_server={10.0.0.1}", 'domain_name="blue.acme.internal"',
            "classless_static_route={203.0.113.0/28,10.0.0.1}"} <= set(dhcp.split("\n"))  # fmt: skip
    ovn.nbctl("--wait=sb", "--timeout=30", "sync")
    assert port in ovn.sbctl("--bare", "--columns=logical_port", "list", "port_binding")


def test_a_card_that_comes_alone_brings_its_network_and_goes_alone(ovn: RealOvn) -> None:
    _add(ovn, WEB)
    assert _compare(ovn, _rows(WEB)) == ()
    _add(ovn, DB)
    assert _compare(ovn, _rows(WEB, DB)) == ()
    with _northbound(ovn).open() as session:
        for _ in range(2):
            session.change(removal(card_rows(BLUE, OVERLAY, DB)))
    assert _compare(ovn, _rows(WEB)) == ()


def test_a_card_that_moves_is_of_two_hosts_and_then_of_the_other(ovn: RealOvn) -> None:
    _add(ovn, WEB)
    moving, moved = replace(WEB, hosts=("gpu-1", "gpu-2")), replace(WEB, hosts=("gpu-2",))
    _add(ovn, moving)
    assert "gpu-1,gpu-2" in _get(ovn, "logical_switch_port", port_id("vm-1", 0), "options")
    _add(ovn, moved)
    assert _get(ovn, "logical_switch_port", port_id("vm-1", 0), "options") == "{requested-chassis=gpu-2}"


DRIFT: Mapping[str, tuple[str, ...]] = {
    "a port's address": ("set", "logical_switch_port", port_id("vm-1", 0), "port_security=[]"),
    "a port is gone": ("lsp-del", port_id("vm-1", 0)),
    "a port's options": ("set", "logical_switch_port", port_id("vm-1", 0), "options:requested-chassis=gpu-9"),
    "a port is off": ("set", "logical_switch_port", port_id("vm-1", 0), "enabled=false"),
    "a port is within another": ("set", "logical_switch_port", port_id("vm-1", 0), "tag=7", "parent_name=its"),
    "the switch is gone": ("ls-del", "acme.blue"),
    "the router is gone": ("lr-del", "acme.blue"),
    "names are gone": ("--all", "destroy", "dns"),
    "names are nobody's": ("clear", "logical_switch", "acme.blue", "dns_records"),
    "DHCP is gone": ("--all", "destroy", "dhcp_options"),
    "no rule": ("clear", "logical_switch", "acme.blue", "acls"),
    "another rule": ("set", "acl", ".", "action=allow"),
    "all is lost": ("--all", "destroy", "logical_switch", "--", "--all", "destroy", "logical_router",
                    "--", "--all", "destroy", "dhcp_options", "--", "--all", "destroy", "dns"),
}  # fmt: skip


@pytest.mark.parametrize("words", DRIFT.values(), ids=DRIFT)
def test_what_somebody_changed_is_written_again_and_nothing_else(ovn: RealOvn, words: tuple[str, ...]) -> None:
    rows = _rows(WEB, DB)
    _compare(ovn, rows)
    before = _all_of(ovn)
    if "acl" in words and "set" in words:
        words = tuple(_acl(ovn) if word == "." else word for word in words)
    ovn.nbctl(*words)
    assert _compare(ovn, rows) != ()
    assert _compare(ovn, rows) == ()
    assert _all_of(ovn) == before


def _acl(ovn: RealOvn) -> str:
    return ovn.nbctl("--bare", "--columns=_uuid", "list", "acl").strip()


def _all_of(ovn: RealOvn) -> list[dict[tuple[str, str], Mapping[str, Any]]]:
    with _northbound(ovn).open() as session:
        read = session.read_all(SITE, TABLES)
    return [{key: {name: _sorted(value) for name, value in row.items() if name not in {"_version", "up"}}
             for key, row in read.items()}]  # fmt: skip


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _of_23_03(schema: Any) -> None:
    schema["tables"]["DNS"]["columns"].pop("options", None)


def _of_24_03(schema: Any) -> None:
    schema["tables"]["DNS"]["columns"]["options"] = schema["tables"]["Logical_Switch_Port"]["columns"]["options"]


@pytest.mark.parametrize(("of_version", "owns"), [(_of_23_03, False), (_of_24_03, True)])
def test_who_asks_for_an_ipv6_address_of_a_name_gets_an_answer(
    tmp_path: Path, of_version: Callable[[Any], None], owns: bool
) -> None:
    with real_ovn(tmp_path, of_northbound=of_version) as ovn:
        with _northbound(ovn).open() as session:
            assert session.owns_names is owns
        rows = _rows(replace(WEB, owned=owns))
        assert _compare(ovn, rows) != ()
        assert _compare(ovn, rows) == ()
        with _northbound(ovn).open() as session:
            (kept,) = session.read(row for row in rows if row.table == "DNS").values()
        assert kept.get("options") == ({"ovn-owned": "true"} if owns else None)
        assert kept["records"]["web"] == ("10.0.0.5" if owns else "10.0.0.5 ::ffff:10.0.0.5")


def test_what_is_foreign_or_another_sites_stays(ovn: RealOvn) -> None:
    ovn.nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "their-port")
    _compare(ovn, _rows(WEB))
    ovn.nbctl("lsp-add", "acme.blue", "their-port-on-ours")
    with _northbound(ovn).open() as session:
        assert difference(_rows(), session.read_all("site-2", TABLES), "site-2") != ()
        assert left_over((), session.read_all("site-2", TABLES), "site-2") == ()
    assert _compare(ovn, _rows(WEB)) == ()
    assert "their-port" in ovn.nbctl("lsp-list", "theirs")
    assert "their-port-on-ours" in ovn.nbctl("lsp-list", "acme.blue")


def test_networks_that_are_wanted_no_more_go_with_all_that_they_had(ovn: RealOvn) -> None:
    _compare(ovn, _rows(WEB, DB))
    other = tuple(rows_of([(Network(name="globex.blue"), replace(OVERLAY, id="other"), [replace(WEB, vm="vm-3")])], {}))
    assert _compare(ovn, (*_rows(WEB), *other)) != ()
    assert sorted(ovn.nbctl("--bare", "--columns=name", "list", "logical_switch").split()) == [
        "acme.blue",
        "globex.blue",
    ]
    _compare(ovn, ())
    for table in ("logical_switch", "logical_switch_port", "logical_router", "dhcp_options", "dns", "acl"):
        assert ovn.nbctl("list", table) == ""


def test_a_northbound_that_is_away_is_said_and_one_that_refuses_says_why(ovn: RealOvn, tmp_path: Path) -> None:
    away = OvnNorthbound(endpoints=(f"unix:{tmp_path / 'none'}",), trust=lambda: None)
    with pytest.raises(Retryable) as silent, away.open():
        pass
    assert silent.value.code == "ovn.unreachable"
    rows = _rows(WEB)
    _compare(ovn, rows)
    with _northbound(ovn).open() as session, pytest.raises(Retryable) as refused:
        session.change(tuple(chain.from_iterable(change.operations for change in difference(rows, {}, SITE))))
    assert refused.value.code == "ovn.outdated"
    with _northbound(ovn).open() as session, pytest.raises(Retryable) as refused:
        session.change([{"op": "insert", "table": "Never", "row": {}}])
    assert refused.value.code == "ovn.refused"
