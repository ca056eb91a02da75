# SPDX-License-Identifier: Apache-2.0
"""Which Port_Groups security groups are, and whose addresses their rules match."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from orchestrator.core.northbound.groups import PORT_GROUP, GroupUsed, group_key, in_use, port_group, rows_of_groups
from orchestrator.core.northbound.rows import OUR_SITE, Existing, OvnRow, left_over
from orchestrator.core.overlay import FlowLog, NetworkPeer, OvnNetwork
from orchestrator.core.ovn import OUR_ID
from orchestrator.core.security_groups import SecurityGroup, parse_rule
from orchestrator.core.vms.network import Network

SITE = "site"
WEB, DB = (
    SecurityGroup(tenant="red", name=name, rules=tuple(map(parse_rule, rules)))
    for name, rules in (("web", []), ("db", ["in tcp 5432 from group web", "out any"]))
)


def _network(name: str, *peers: str, flow_log: FlowLog = "off") -> Network:
    joined = tuple(NetworkPeer(network=peer, id=f"id-{peer}", state="joined") for peer in peers)
    overlay = OvnNetwork(id=f"id-{name}", subnets=("10.0.0.0/24",), peers=joined, flow_log=flow_log)
    return Network(name=name, overlay=overlay)


def _rows(used: Iterable[GroupUsed], *networks: Network) -> tuple[OvnRow, ...]:
    find = {network.name: network for network in networks}.get
    return rows_of_groups(SITE, in_use([WEB, DB], used, find))


def _groups(rows: Iterable[OvnRow]) -> set[str]:
    return {row.key.removeprefix("site ") for row in rows if row.table == PORT_GROUP}


def _match(rows: Iterable[OvnRow], rule: str) -> str:
    return str(next(row.columns["match"] for row in rows if row.key.endswith(rule)))


def test_a_group_is_one_port_group_on_each_network_where_cards_are_in_it_or_are_let_in_from_it() -> None:
    one, two = _network("red.one"), _network("red.two")
    rows = _rows([("red", "db", "red.one"), ("red", "web", "red.two")], one, two)
    assert _groups(rows) == {"red/db id-red.one", "red/web id-red.one", "red/web id-red.two"}
    assert len({row.columns["name"] for row in rows if row.table == PORT_GROUP}) == 3
    assert len({row.uuid for row in rows}) == len(rows)
    ruled = {row.key.split()[2] for row in rows if row.table == "ACL" and "/web" in row.key}
    assert ruled == {"id-red.two"}, "of a group that is only named there are the members"


def test_a_rule_matches_members_on_its_network_and_on_its_tenants_that_are_joined_with_it() -> None:
    one = _network("red.one", "red.two", "blue.net", "red.asked")
    two, three = _network("red.two", "red.one", "red.three"), _network("red.three", "red.two")
    others = _network("blue.net", "red.one"), _network("red.asked")
    rows = _rows([("red", "db", "red.one")], one, two, three, *others)
    sets = {f"${port_group(SITE, 'red', 'web', f'id-red.{name}')}_ip{n}" for name in ("one", "two") for n in (4, 6)}
    assert {word.strip("()") for word in _match(rows, "from group web").split() if "$" in word} == sets
    assert _groups(rows) == {"red/db id-red.one", "red/web id-red.one", "red/web id-red.two"}, "or no set has that name"


def test_whatever_its_rules_a_card_asks_for_its_address_and_sends_nothing_else_to_such_a_port() -> None:
    rows = _rows([("red", "web", "red.one")], _network("red.one"))
    name = port_group(SITE, "red", "web", "id-red.one")
    assert _match(rows, "id-red.one address") == (
        f"inport == @{name} && ((udp.src == 68 && udp.dst == 67 && ip4.dst == {{255.255.255.255, 10.0.0.1}})"
        " || (udp.src == 546 && udp.dst == 547 && ip6.dst == ff02::1:2))"
    )


def test_packets_are_on_record_on_the_network_that_wants_it_alone() -> None:
    one, two = _network("red.one", flow_log="refused"), _network("red.two")
    rows = _rows([("red", "db", "red.one"), ("red", "db", "red.two")], one, two)
    logged = {row.key for row in rows if row.columns.get("log") is True}
    assert logged == {f"site red/db id-red.one drop {way}" for way in ("in", "out")}
    assert [row.table for row in rows if row.table == "Meter"] == ["Meter"]


def _read(rows: Iterable[OvnRow], **members: Any) -> Existing:
    ids = {(row.table, str(row.uuid)): {OUR_ID: row.key, OUR_SITE: SITE} for row in rows}
    return {(row.table, str(row.uuid)): {**row.columns, "external_ids": ids[row.table, str(row.uuid)], **members}
            for row in rows}  # fmt: skip


def test_a_group_stays_until_a_card_in_it_is_in_another_that_an_operation_is_to_write() -> None:
    old = OvnRow(table=PORT_GROUP, key=group_key(SITE, "red", "old", "id-red.one"), columns={"name": "old"})
    card = OvnRow(table="Logical_Switch_Port", key="vm/0", columns={})
    rule = OvnRow(table="ACL", key=f"{old.key} drop in", columns={})
    existing = {**_read([old], ports=(str(card.uuid),), acls=(str(rule.uuid),)), **_read([card, rule])}
    assert [each.words for each in left_over([card], existing, SITE)] == [f"Port_Group {old.key}: wanted no more"]
    assert left_over([card], existing, SITE, [card]) == ()
    assert left_over([card], existing, SITE, [replace(card, key="other/0")]) != ()


def test_cards_that_no_operation_is_at_leave_a_group_that_another_card_waits_in() -> None:
    """Its rules are those of the day when it was wanted last: they may allow what was taken back since."""
    old = OvnRow(table=PORT_GROUP, key=group_key(SITE, "red", "old", "id-red.one"), columns={"name": "old"})
    stuck, *settled = (OvnRow(table="Logical_Switch_Port", key=f"{vm}/0", columns={}) for vm in ("vm", "one", "two"))
    cards = (stuck, *settled)
    existing = {**_read([old], ports=tuple(str(card.uuid) for card in cards)), **_read(cards)}
    (change,) = left_over(cards, existing, SITE, [stuck])
    assert change.words == f"Port_Group {old.key}: wanted no more, but for some of its ports"
    (operation,) = change.operations
    uuids = [["uuid", uuid] for uuid in sorted(str(card.uuid) for card in settled)]
    assert (operation["op"], operation["mutations"]) == ("mutate", [["ports", "delete", ["set", uuids]]])
