# SPDX-License-Identifier: Apache-2.0
"""OVN for simulated hosts: its own databases and ovn-northd, and in the place of each host's ovn-controller what says
that it has set cards up. No packet is sent; what becomes of one ovn-trace says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.fakes.ovn_databases import RealOvn, real_ovn

PHYSICAL: Final = "physnet1"
_MAPPINGS: Final = (
    f"other_config:ovn-bridge-mappings={PHYSICAL}:br-ex", "other_config:ovn-cms-options=enable-chassis-as-gw",
)  # fmt: skip
_EVERY_S: Final = 0.2


@contextmanager
def ovn_of_simulated_hosts(root: Path) -> Iterator[dict[str, object]]:
    """Settings of a server, while it is at work."""
    root.mkdir()
    ended = threading.Event()
    with real_ovn(root) as ovn:
        ovn.sbctl("chassis-add", "gateway", "geneve", "198.51.100.1", "--", "set", "chassis", "gateway", *_MAPPINGS)
        hosts = threading.Thread(target=_set_up, args=(ovn, ended), daemon=True)
        hosts.start()
        try:
            yield {"ovn_northbound": ovn.socket("northbound"), "ovn_southbound": ovn.socket("southbound")}
        finally:
            ended.set()
            hosts.join(30)


def _set_up(ovn: RealOvn, ended: threading.Event) -> None:
    """Each card where OVN wants it."""
    addresses = dict[str, str]()
    while not ended.wait(_EVERY_S):
        found = ovn.sbctl("--format=json", "--columns=logical_port,options", "find", "port_binding", "up=false")
        for port, (_, options) in json.loads(found)["data"]:
            host = dict(options).get("requested-chassis")
            if host:
                address = addresses.setdefault(host, f"198.51.100.{len(addresses) + 10}")
                ovn.sbctl("--may-exist", "chassis-add", host, "geneve", address)
                ovn.sbctl("--may-exist", "lsp-bind", port, host, "--", "set", "port_binding", port, "up=true")
