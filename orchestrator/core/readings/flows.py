# SPDX-License-Identifier: Apache-2.0
"""Flows: what OVN logged of packets at rules of security groups (ovn-nb(5), ACL ``log``), put together by connection.
Pure; ships with the agent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final, Literal, TypeVar

from orchestrator.core.errors import Unknown

MAX_FLOWS: Final = 500
"""Of one frame; of what is more :func:`shared_out` leaves some out."""
MAX_KEPT: Final = 2000
"""Of a host at a controller, as :func:`shared_out` says."""
KEPT_S: Final = 3600.0
NO_CARD: Final = ""
"""Where cards are counted: it is not known whose."""
LAST_AT: Final = 2.0**37
"""In the year 6325: a later time has no calendar."""
_LINE: Final = re.compile(
    r"(\S{19,30}Z)\|\d+\|acl_log\([^)|]*\)\|INFO\|"
    r'name="([0-9a-f-]{36})", verdict=(allow|drop), severity=\w+, direction=(to|from)-lport: (\w+),(\S+)'
)
_PROTOCOL: Final = re.compile(r"[a-z]+")
_MAC: Final = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_RULE: Final = re.compile(r"[0-9a-f-]{36}")
_ADDRESS: Final = re.compile(r"[0-9a-f.:]{2,45}")
_DIGITS: Final = re.compile(r"[0-9]{1,5}")
_MOST: Final = 2**53
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Packets that were alike but for the port that they came from."""

    at: float
    """Of the last of them, in seconds since 1970 by the host's clock."""
    rule: str
    """UUID of the ACL that judged them."""
    direction: Literal["in", "out"]
    """At the card that they reached, or that they left."""
    refused: bool
    card: str
    """Its hardware address."""
    source: str
    """IP address."""
    target: str
    """IP address."""
    protocol: str
    """As Open vSwitch calls it, without the 6 of IPv6: tcp, udp, icmp, ip and others."""
    port: int | None
    """Of the target, of TCP and UDP."""
    packets: int
    """At least: of a flood OVN logs a part."""


@dataclass(frozen=True, slots=True)
class LoggedFlows:
    """Of one frame. ``left_out``: by card, how many more there were."""

    flows: tuple[Flow, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a card is not kept. ``at``: when the newest was, by the host's clock."""

    at: float
    flows: int


def flow_of(line: str) -> Flow | None:
    """Of one of ovn-controller's log; None: it tells of something else, is foreign, or came to many at once: that is no
    card's, and each of a guest's many group addresses would have a card's share (:func:`shared_out`)."""
    read = _LINE.match(line)
    if read is None:
        return None
    at, rule, verdict, direction, protocol, rest = read.groups()
    fields = dict(field.partition("=")[::2] for field in rest.split(","))
    direction = "in" if direction == "to" else "out"
    try:
        card = fields["dl_dst" if direction == "in" else "dl_src"]
        if int(card[:2], 16) & 1:
            return None
        port = fields.get("tp_dst") if protocol.startswith(("tcp", "udp")) else None
        return flow_from_dict({
            "at": datetime.fromisoformat(f"{at[:-1]}+00:00").timestamp(), "rule": rule, "direction": direction,
            "refused": verdict == "drop", "card": card,
            "source": fields.get("nw_src") or fields["ipv6_src"], "target": fields.get("nw_dst") or fields["ipv6_dst"],
            "protocol": "ip" if protocol == "ipv6" else protocol.rstrip("6"),
            "port": None if port is None else int(port), "packets": 1,
        })  # fmt: skip
    except (KeyError, ValueError, Unknown):
        return None


def folded(flows: Iterable[Flow], unread: int) -> LoggedFlows:
    """Those that are alike as one, at most :data:`MAX_FLOWS`. ``unread``: packets that are not among them."""
    alike: dict[Flow, Flow] = {}
    for flow in flows:
        key = replace(flow, at=0.0, packets=0)
        before = alike.get(key)
        if before is not None:
            alike[key] = replace(flow, at=max(flow.at, before.at), packets=flow.packets + before.packets)
        else:
            alike[key] = flow
    kept, others = shared_out(alike.values(), MAX_FLOWS, lambda flow: flow.card)
    counts = Counter(flow.card for flow in others)
    largest = dict(counts.most_common(MAX_FLOWS))
    unread += counts.total() - sum(largest.values())
    return LoggedFlows(kept, largest | ({NO_CARD: unread} if unread else {}))


def shared_out(flows: Iterable[_T], most: int, card: Callable[[_T], str]) -> tuple[tuple[_T, ...], tuple[_T, ...]]:
    """At most so many, the newest of each card, which come last; and the others. Cards have the same share of what is
    too much for all: whoever fills a host's log with its own takes none of another's away."""
    known = tuple(flows)
    if len(known) <= most:
        return known, ()
    counts = sorted(Counter(map(card, known)).values())
    left, share = most, 1
    for place, count in enumerate(counts):
        share = max(1, left // (len(counts) - place))
        if count > share:
            break
        left -= count
    kept, newest, others = Counter[str](), list[_T](), list[_T]()
    for flow in reversed(known):
        kept[card(flow)] += 1
        (newest if kept[card(flow)] <= share and len(newest) < most else others).append(flow)
    return tuple(reversed(newest)), tuple(reversed(others))


def flow_to_dict(flow: Flow) -> dict[str, object]:
    """Plain JSON."""
    return {name: getattr(flow, name) for name in Flow.__slots__}


def flow_from_dict(data: Any) -> Flow:
    """What an agent sent. :raises Unknown: ``agent.answer_invalid``"""
    try:
        flow = Flow(**{name: data[name] for name in Flow.__slots__})
        texts = (
            (_RULE, flow.rule), (_MAC, flow.card), (_PROTOCOL, flow.protocol),
            (_DIGITS, "0" if flow.port is None else str(flow.port)),
        )  # fmt: skip
        ends = [str(ip_address(text)) == text for text in (flow.source, flow.target) if _ADDRESS.fullmatch(text)]
        well = (
            all(pattern.fullmatch(text) is not None for pattern, text in texts) and ends == [True, True]
            and type(flow.at) in {int, float} and 0 <= flow.at <= LAST_AT and type(flow.refused) is bool
            and flow.direction in {"in", "out"} and _is_count(flow.packets)
            and type(flow.port) in {int, type(None)} and len(flow.protocol) <= len("icmp") * 2
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        well = False
    if not well:
        raise Unknown("agent.answer_invalid", "the agent sent flows that are none")
    return flow


def left_out_from_dict(data: Any) -> Mapping[str, int]:
    """What an agent sent. :raises Unknown: ``agent.answer_invalid``"""
    well = isinstance(data, dict) and len(data) <= MAX_FLOWS + 1
    if not well or not all(_is_card(card) and _is_count(count) for card, count in data.items()):
        raise Unknown("agent.answer_invalid", "the agent sent counts of flows that are none")
    return dict(data)


def _is_card(card: object) -> bool:
    return card == NO_CARD or (isinstance(card, str) and _MAC.fullmatch(card) is not None)


def _is_count(count: object) -> bool:
    return type(count) is int and 0 < count < _MOST
