# SPDX-License-Identifier: Apache-2.0
"""Interfaces of the host, by iproute2: the addresses of a card's virtual functions, and ports of bridges."""

from __future__ import annotations

import json
from typing import Protocol

from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, run

_SECONDS = 20.0
_MAX_OUTPUT = 256 * 1024
"""A card with 256 functions takes less than 64 KiB."""


class NicLinks(Protocol):
    """What is asked of the host's network cards."""

    def mac_of(self, interface: str, number: int) -> str | None:
        """Of the card's function of that number; None: the card does not tell."""

    def set_mac(self, interface: str, number: int, mac: str) -> str | None:
        """What the card's driver had against it; None: it is so. The guest cannot change it, nor send as another where
        the driver checks that (``spoofchk``)."""


class IpLinks:
    """Starts ``ip`` for each question."""

    def mac_of(self, interface: str, number: int) -> str | None:
        code, output = _ip("-j", "link", "show", "dev", interface)
        try:
            functions = json.loads(output)[0].get("vfinfo_list", ()) if code == 0 else ()
            mac = next(
                (
                    function.get("address", function.get("mac"))
                    for function in functions
                    if function.get("vf") == number
                ),
                None,
            )
        except (ValueError, LookupError, AttributeError, TypeError):
            return None
        return mac if isinstance(mac, str) else None

    def set_mac(self, interface: str, number: int, mac: str) -> str | None:
        wanted = ("link", "set", "dev", interface, "vf", str(number), "mac", mac)
        code, output = _ip(*wanted, "spoofchk", "on")
        if code != 0:  # some drivers set addresses and check nothing
            code, output = _ip(*wanted)
        return None if code == 0 else " ".join(output.split())[:200]


def plug(interface: str, bridge: str, *, isolated: bool) -> str | None:
    """Make a VM's interface a port of a bridge, as libvirt does when the VM starts; what was against it, None: it is
    one. It is down until it is kept apart from others."""
    steps = [("down",), ("master", bridge)]
    steps += [("type", "bridge_slave", "isolated", "on")] if isolated else []
    for step in (*steps, ("up",)):
        code, output = _ip("link", "set", "dev", interface, *step)
        if code != 0:
            return " ".join(output.split())[:200]
    return None


def _ip(*words: str) -> tuple[int, str]:
    try:
        done = run(["ip", *words], limit_s=_SECONDS, most_bytes=_MAX_OUTPUT)
    except (OSError, ChildHangs, ChildTalksTooMuch) as error:
        return 1, str(error)
    return done.code, done.output


def own_addresses() -> tuple[str, ...]:
    """IP addresses of the host that others may reach it at, as ``ip`` lists them; empty: it does not tell. Of an
    interface's addresses that have another scope it writes an empty object."""
    code, output = _ip("-j", "address", "show", "up", "scope", "global")
    try:
        interfaces = json.loads(output) if code == 0 else ()
        infos = [info for interface in interfaces for info in interface.get("addr_info", ()) if info]
        return tuple(str(info["local"]) for info in infos)
    except (ValueError, LookupError, AttributeError, TypeError):
        return ()
