# SPDX-License-Identifier: Apache-2.0
"""What ovn-controller has logged of packets, as OVN 23.03 writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.core.errors import Unknown
from orchestrator.core.readings.flows import (
    MAX_FLOWS,
    NO_CARD,
    Flow,
    LoggedFlows,
    flow_from_dict,
    flow_of,
    flow_to_dict,
    left_out_from_dict,
)

RULE = "1b2d1f9e-7d1b-5c62-9c3f-0c64ce06be4c"
TCP = (
    f'2026-11-29T14:58:01.250Z|00012|acl_log(ovn_pinctrl0)|INFO|name="{RULE}", verdict=drop, severity=info, '
    "direction=to-lport: tcp,vlan_tci=0x0000,dl_src=52:54:00:00:00:01,dl_dst=52:54:00:00:00:02,nw_src=10.0.0.5,"
    "nw_dst=10.0.0.6,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=40000,tp_dst=22,tcp_flags=syn"
)
ICMP6 = (
    f'2026-11-29T14:58:02Z|00013|acl_log(ovn_pinctrl0)|INFO|name="{RULE}", verdict=allow, severity=info, '
    "direction=from-lport: icmp6,vlan_tci=0x0000,dl_src=52:54:00:00:00:01,dl_dst=52:54:00:00:00:02,ipv6_src=fd00::5,"
    "ipv6_dst=fd00::6,ipv6_label=0x00000,nw_tos=0,nw_ecn=0,nw_ttl=64,icmp_type=128,icmp_code=0"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ovn-controller.log"
    made.write_text(f"{TCP}\n")
    return made


def _add(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_line_is_read_as_ovn_writes_it() -> None:
    assert flow_of(TCP) == Flow(
        at=1795964281.25, rule=RULE, direction="in", refused=True, card="52:54:00:00:00:02", source="10.0.0.5",
        target="10.0.0.6", protocol="tcp", port=22, packets=1,
    )  # fmt: skip
    assert flow_of(ICMP6) == Flow(
        at=1795964282.0, rule=RULE, direction="out", refused=False, card="52:54:00:00:00:01", source="fd00::5",
        target="fd00::6", protocol="icmp", port=None, packets=1,
    )  # fmt: skip
    assert getattr(flow_of(ICMP6.replace("icmp6,", "ipv6,")), "protocol", None) == "ip"


@pytest.mark.parametrize("group", ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:07", "33:33:00:00:00:01"])
def test_what_came_to_many_at_once_is_no_cards_and_has_no_share(group: str) -> None:
    """A guest has millions of such addresses to send to: each would take its share of a neighbour tenant's."""
    assert flow_of(TCP.replace("dl_dst=52:54:00:00:00:02", f"dl_dst={group}")) is None


@pytest.mark.parametrize(("is_so", "other"), [
    (RULE, "their-rule"), ("acl_log", "binding"), ("verdict=drop", "verdict=reject"), ("nw_src=10.0.0.5,", ""),
    ("10.0.0.6", "10.0.0.600"), ("tp_dst=22", "tp_dst=x"), ("2026-11", "2026-13"), (TCP, ""), ("tcp,", "tcp"),
])  # fmt: skip
def test_a_line_of_something_else_is_passed_over(is_so: str, other: str) -> None:
    assert flow_of(TCP.replace(is_so, other)) is None


def test_what_was_logged_since_is_read_once_and_put_together(path: Path) -> None:
    log = FlowLog(path)
    assert log.read() == LoggedFlows()
    _add(path, TCP, TCP.replace("tp_src=40000", "tp_src=40001").replace("01.250Z", "03.250Z"), "binding|INFO", ICMP6)
    first, second = log.read().flows
    assert (first.packets, first.at, second.protocol) == (2, 1795964283.25, "icmp")
    assert log.read() == LoggedFlows()
    with path.open("a") as file:
        file.write(TCP[:100])
    assert log.read() == LoggedFlows()
    _add(path, TCP[100:])
    assert [flow.packets for flow in log.read().flows] == [1]


def test_lines_around_a_rotation_are_read(path: Path) -> None:
    log = FlowLog(path)
    log.read()
    _add(path, TCP)
    path.rename(path.with_suffix(".log.1"))
    _add(path, ICMP6)
    assert [flow.protocol for flow in log.read().flows] == ["tcp", "icmp"]
    path.write_text("")
    log.read()
    _add(path, ICMP6)
    assert [flow.protocol for flow in log.read().flows] == ["icmp"]


def test_a_log_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = FlowLog(tmp_path / "later")
    assert log.read() == LoggedFlows()
    _add(tmp_path / "later", TCP)
    assert len(log.read().flows) == 1


def test_of_a_flood_the_newest_are_read_and_the_others_counted(path: Path) -> None:
    log = FlowLog(path)
    log.read()
    _add(path, ICMP6, *(TCP.replace("tp_dst=22", f"tp_dst={1 + number % 3000}") for number in range(5000)))
    logged = log.read()
    assert (len(logged.flows), {flow.protocol for flow in logged.flows}) == (MAX_FLOWS, {"tcp"})
    unread, card = logged.left_out[NO_CARD], logged.flows[0].card
    assert unread + (1024 * 1024 // (len(TCP) + 3)) == pytest.approx(5001, abs=5)
    assert logged.left_out == {NO_CARD: unread, card: logged.left_out[card]}
    assert logged.left_out[card] > 2000
    assert log.read() == LoggedFlows()


def test_a_card_that_fills_a_frame_leaves_the_others_their_share(path: Path) -> None:
    log = FlowLog(path)
    log.read()
    others = [TCP.replace("tp_dst=22", f"tp_dst={1 + number}") for number in range(700)]
    _add(path, *others, *(ICMP6 for _ in range(3)))
    logged = log.read()
    assert len(logged.flows) == MAX_FLOWS
    assert [(flow.protocol, flow.packets) for flow in logged.flows if flow.protocol == "icmp"] == [("icmp", 3)]
    assert max(flow.port or 0 for flow in logged.flows) == 700
    assert logged.left_out == {"52:54:00:00:00:02": 701 - MAX_FLOWS}


@pytest.mark.parametrize("sent", [
    [], {"52:54": 1}, {"": 0}, {"": -1}, {"": True}, {"": 1.5}, {"": 2**60},
    {f"52:54:00:00:{n // 256:02x}:{n % 256:02x}": 1 for n in range(MAX_FLOWS + 2)},
])  # fmt: skip
def test_what_counts_no_flows_is_refused(sent: object) -> None:
    assert left_out_from_dict({NO_CARD: 3, "52:54:00:00:00:01": 1})
    with pytest.raises(Unknown) as refused:
        left_out_from_dict(sent)
    assert refused.value.code == "agent.answer_invalid"


@pytest.mark.parametrize(("name", "value"), [
    ("at", "now"), ("at", float("nan")), ("at", True), ("at", -1.0), ("at", 1e15), ("rule", "x"), ("rule", None),
    ("direction", "to"), ("refused", 1), ("card", "52:54"), ("source", 5), ("target", "::g"),
    ("source", "fe80::1%eth0\n"), ("protocol", "TCP"), ("protocol", "a" * 100), ("port", -1), ("port", "22"),
    ("packets", 0), ("packets", 2**60),
])  # fmt: skip
def test_what_is_no_flow_is_refused(name: str, value: object) -> None:
    flow = flow_of(TCP)
    assert flow is not None
    sent = flow_to_dict(flow)
    assert flow_from_dict(sent) == flow
    with pytest.raises(Unknown) as refused:
        flow_from_dict({**sent, name: value})
    assert refused.value.code == "agent.answer_invalid"
