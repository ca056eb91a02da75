# SPDX-License-Identifier: Apache-2.0
"""How long packets take between hosts of networks over all hosts, and what of that is told of as trouble. Pure; ships
with the agent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Final

from orchestrator.core.errors import Unknown

MAX_TUNNELS: Final = 5
"""That a host measures, the same each time: a site of 1,000 hosts has 5,000 of them, and each is as old as the rest."""
_SLOW_MS: Final = (10, 20, 50, 100, 200, 500)
"""More than the first is slow; text tells the last that is exceeded, so that it changes seldom."""
_MAX_S: Final = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Tunnel:
    """To one other host, measured once by a few packets."""

    address: str
    """The other host's encapsulation address."""
    sent: int
    """Packets."""
    lost: int
    """Of those that were sent."""
    min_s: float | None
    """The shortest time there and back, of packets that were answered; None: none was."""
    avg_s: float | None
    """Their mean."""


def tunnel_of(address: str, sent: int, times_s: Iterable[float]) -> Tunnel:
    """``times_s``: of the packets that were answered."""
    times = list(times_s)
    least, mean = (min(times), sum(times) / len(times)) if times else (None, None)
    return Tunnel(address=address, sent=sent, lost=sent - len(times), min_s=least, avg_s=mean)


def nearest(own: str, addresses: Iterable[str]) -> tuple[str, ...]:
    """Those whose tunnels a host measures: the next after its own address, in a ring. So each host is measured by as
    many others. What is no IP address is left out."""
    known = sorted({key: text for text in addresses if (key := _key(text)) is not None}.items())
    after = [text for key, text in known if key > (_key(own) or (0, 0))]
    return tuple(dict.fromkeys((*after, *(text for _, text in known))))[:MAX_TUNNELS]


def _key(address: str) -> tuple[int, int] | None:
    """None: it is no address, or good on one link alone (``fe80::1%eth0``)."""
    try:
        read = ip_address(address)
    except ValueError:
        return None
    return None if "%" in address else (read.version, int(read))


def is_silent(measured: Iterable[Tunnel]) -> bool:
    """None of these measurements of a tunnel had an answer."""
    return all(each.lost == each.sent for each in measured)


def slowness(measured: Iterable[Tunnel]) -> str | None:
    """What is wrong with a tunnel that carries something, if it is so of each of these measurements; for people."""
    each = tuple(measured)
    if is_silent(each):
        return None
    if all(tunnel.lost for tunnel in each):
        return "packets are lost"
    least = min((tunnel.min_s for tunnel in each if tunnel.min_s is not None), default=0.0)
    exceeded = [bound for bound in _SLOW_MS if least * 1000 > bound]
    return f"more than {exceeded[-1]} ms there and back" if exceeded else None


def tunnel_to_dict(tunnel: Tunnel) -> dict[str, object]:
    """Plain JSON."""
    return asdict(tunnel)


def tunnels_from_list(listed: object) -> tuple[Tunnel, ...]:
    """What an agent sent. :raises Unknown: ``agent.answer_invalid``: it is none, too many, or one twice"""
    try:
        if isinstance(listed, list) and len(listed) <= MAX_TUNNELS:
            tunnels = tuple(map(_tunnel, listed))
            if len({tunnel.address for tunnel in tunnels}) == len(tunnels):
                return tunnels
    except (LookupError, TypeError, ValueError, OverflowError):
        pass
    raise Unknown("agent.answer_invalid", "the agent sent tunnels that are none")


def _tunnel(data: Any) -> Tunnel:
    sent, lost, times = data["sent"], data["lost"], (data["min_s"], data["avg_s"])
    counted = type(sent) is int and type(lost) is int and 0 <= lost <= sent and 0 < sent <= 100
    if not counted or any(time is not None and not 0 <= float(time) <= _MAX_S for time in times):
        raise ValueError("no measurement")
    if _key(str(data["address"])) is None:
        raise ValueError("no address")
    min_s, avg_s = (None if time is None else float(time) for time in times)
    return Tunnel(address=str(data["address"]), sent=sent, lost=lost, min_s=min_s, avg_s=avg_s)
