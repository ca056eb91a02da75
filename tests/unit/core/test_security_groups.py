# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.security_groups import (
    ANYWHERE,
    MAX_RULES,
    GroupsOfCards,
    GroupUse,
    SecurityGroup,
    SecurityRule,
    changed_rules,
    check_rule,
    default_group,
    naming,
    parse_ports,
    parse_rule,
)

UPWARDS: dict[str, Any] = {"direction": "up", "protocol": "tcp"}
SSH = SecurityRule(direction="in", protocol="tcp", first_port=22, remote="10.0.0.0/8")


def group(name: str, *uses: GroupUse, rules: tuple[SecurityRule, ...] = (), tenant: str = "red") -> SecurityGroup:
    return SecurityGroup(tenant=tenant, name=name, uses=uses, rules=rules)


def test_a_rule_reads_as_a_sentence_and_has_one_form() -> None:
    assert str(check_rule(SSH)) == "in tcp 22 from 10.0.0.0/8"
    assert str(check_rule(SecurityRule(direction="out", protocol="udp", first_port=1, last_port=9, group="dns"))) == (
        "out udp 1-9 to group dns"
    )
    assert str(ANYWHERE) == "out any"
    assert check_rule(SecurityRule(direction="in", remote="2001:db8::")).remote == "2001:db8::/128"
    assert check_rule(check_rule(SSH)) == check_rule(SSH)
    refusal = SecurityRule(direction="in", protocol="tcp", first_port=22, remote="10.0.0.0/8", refuse=True)
    assert str(check_rule(refusal)) == "refuse in tcp 22 from 10.0.0.0/8"
    for rule in (SSH, refusal, ANYWHERE):
        assert parse_rule(str(check_rule(rule))) == check_rule(rule)
    with pytest.raises(InvalidInput):
        parse_rule("in refuse tcp 22")


@pytest.mark.parametrize(
    "rule",
    [
        SecurityRule(direction="in", protocol="icmp", first_port=8),
        SecurityRule(direction="in", first_port=8),
        SecurityRule(direction="in", protocol="tcp", first_port=9, last_port=8),
        SecurityRule(direction="in", protocol="tcp", first_port=0),
        SecurityRule(direction="in", protocol="tcp", first_port=1, last_port=65536),
        SecurityRule(direction="in", protocol="tcp", last_port=8),
        SecurityRule(direction="in", remote="10.0.0.1/8"),
        SecurityRule(direction="in", remote="0.0.0.0/0; drop"),
        SecurityRule(direction="in", remote="fe80::1%eth0"),
        SecurityRule(direction="in", remote="fe80::1%x || ip4"),
        SecurityRule(direction="in", remote="fe80::1%a\nb\x1b[31m"),
        SecurityRule(direction="in", remote="fe80::%/64"),
        SecurityRule(direction="in", remote="10.0.0.0/8\n"),
        SecurityRule(direction="in", remote="10.0.0.0/8", group="web"),
        SecurityRule(direction="in", group="WEB"),
        SecurityRule(**UPWARDS),
    ],
)
def test_a_rule_that_says_nothing_sensible_is_refused(rule: SecurityRule) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_rule(rule)
    assert refused.value.code in {"group.rule_invalid", "group.name_invalid"}
    assert refused.value.hint


def test_ports_of_what_has_none_are_refused_with_words_that_work() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_rule(SecurityRule(direction="in", protocol="icmp", first_port=8))
    assert refused.value.hint == "write tcp or udp instead, or leave the ports out"


@pytest.mark.parametrize(
    ("text", "hint"), [("10.0.0.5/8", "10.0.0.0/8"), ("2001:db8::7/32", "2001:db8::/32"), ("all", "10.0.0.0/8, ")]
)
def test_an_address_within_a_range_is_answered_with_the_range(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_rule(SecurityRule(direction="in", remote=text))
    assert str(refused.value.hint).startswith(f"write it as {hint}")


def test_ports_are_typed_as_one_or_a_range() -> None:
    assert [parse_ports(text) for text in (None, "443", "8000-8080")] == [(None, None), (443, 443), (8000, 8080)]
    for text in ("", "-", "1-", "-1", "1-2-3", "http", "٣", "1" * 99):
        with pytest.raises(InvalidInput):
            parse_ports(text)


def test_rules_come_and_go_together() -> None:
    before = group("web", rules=(ANYWHERE,))
    rules = changed_rules(before, [SSH, SSH, ANYWHERE], [])
    assert [str(rule) for rule in rules] == ["in tcp 22 from 10.0.0.0/8", "out any"]
    assert changed_rules(group("web", rules=rules), [], [SSH]) == (ANYWHERE,)
    refused = replace(SSH, refuse=True)
    assert len(changed_rules(group("web", rules=rules), [refused], [])) == 3
    with pytest.raises(NotFound):
        changed_rules(group("web", rules=rules), [], [refused])
    with pytest.raises(NotFound) as unknown:
        changed_rules(before, [], [SSH])
    assert unknown.value.hint == "its rules: out any"
    many = [SecurityRule(direction="in", protocol="tcp", first_port=port) for port in range(1, MAX_RULES + 1)]
    assert len(changed_rules(group("web"), many, [])) == MAX_RULES
    with pytest.raises(Conflict):
        changed_rules(before, many, [])


def test_a_card_is_in_the_groups_of_it_its_vm_and_its_network_else_in_the_default_one() -> None:
    groups = [
        group("of-vm", GroupUse(vm="a")), group("of-card", GroupUse(vm="a", network="red.n")),
        group("of-network", GroupUse(network="red.n")), group("another", GroupUse(vm="a"), tenant="blue"),
    ]  # fmt: skip
    of_cards = GroupsOfCards(groups)
    cards = {(vm, network): of_cards.of("red", vm, network) for vm in "ab" for network in ("red.n", "m")}
    assert cards == {
        ("a", "red.n"): ("of-card", "of-network", "of-vm"), ("a", "m"): ("of-vm",),
        ("b", "red.n"): ("of-network",), ("b", "m"): ("default",),
    }  # fmt: skip


def test_the_default_group_lets_its_own_in_and_everything_out() -> None:
    assert [str(rule) for rule in default_group("red").rules] == ["in any from group default", "out any"]
    assert naming("default", [default_group("red")]) == ()
    assert naming("web", [group("db", rules=(SecurityRule(direction="in", group="web"),))]) == ("db",)
