# SPDX-License-Identifier: Apache-2.0
"""1,000 hosts, 20,000 ports in 1,000 networks of 250 tenants, each port in its tenant's default group: one card against
the bare transaction, and the whole comparison, as they take turns; then a group's changes (group_change.py):
``make bench-networks``. Rows go to build/bench/networks.json."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.northbound.groups import in_use, members_of, memberships, ports_by_group, rows_of_groups
from orchestrator.core.northbound.networks import Card, card_rows, network_rows, rows_of
from orchestrator.core.northbound.rows import OvnRow, difference, inserted, left_over, operations_of
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.security_groups import DEFAULT_GROUP
from orchestrator.core.vms.network import Network
from orchestrator.ports.overlay import Northbound
from orchestrator.services.northbound import COMPARED
from tests.bench.networks import group_change
from tests.bench.placement.rows import rows_of as measured
from tests.bench.placement.rows import write
from tests.fakes.ovn_databases import real_ovn

HOSTS, NETWORKS, CARDS, OF_TENANT = 1000, 1000, 20, 4
TURNS = 40


def _network(number: int) -> tuple[Network, OvnNetwork]:
    overlay = OvnNetwork(id=f"net-{number}", subnets=("10.0.0.0/24",))
    return Network(name=f"{_tenant(number)}.net-{number}", overlay=overlay), overlay


def _tenant(network: int) -> str:
    return f"t{network // OF_TENANT}"


def _groups(numbers: Iterable[int]) -> tuple[OvnRow, ...]:
    networks = {_network(number)[0].name: (number, _network(number)[0]) for number in numbers}
    used = [(_tenant(number), DEFAULT_GROUP, name) for name, (number, _) in networks.items()]
    return rows_of_groups("site", in_use((), used, {name: network for name, (_, network) in networks.items()}.get))


def _card(network: int, number: int) -> Card:
    host = f"host-{(network * CARDS + number) % HOSTS}"
    return Card(
        vm=f"vm-{network}-{number}", name=f"vm-{number}", number=0, addresses=(f"10.0.0.{number + 2}",), hosts=(host,),
        groups=members_of("site", _tenant(network), [DEFAULT_GROUP], f"net-{network}"),
    )  # fmt: skip


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def _fill(northbound: Northbound, rows: Iterable[OvnRow]) -> None:
    with northbound.open() as session:
        left = iter(difference(rows, {}, "site"))
        while some := tuple(islice(left, 1000)):
            session.change(operations_of(some))


def _compare(northbound: Northbound, rows: tuple[OvnRow, ...]) -> None:
    with northbound.open() as session:
        existing = session.read_all("site", COMPARED)
        changes = (*difference(rows, existing, "site"), *left_over(rows, existing, "site"))
        assert (*changes, *memberships(rows, ports_by_group(rows), existing, join=False)) == ()


def _add_card(northbound: Northbound, number: int) -> None:
    network = _network(number)
    new = card_rows(*network, _card(number, 100))
    with northbound.open() as session:
        session.change(inserted(new, (*_groups([number]), *network_rows(*network)), "site"))


def _add_bare(northbound: Northbound, number: int) -> None:
    wanted = card_rows(*_network(number), _card(number, 101))
    with northbound.open() as session:
        session.change(operations_of(difference(wanted, {}, "site")))


def _whole() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory, real_ovn(Path(directory)) as ovn:
        ovn.end("northd")  # its work is OVN's own
        northbound = OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)
        cards = ((*_network(number), [_card(number, card) for card in range(CARDS)]) for number in range(NETWORKS))
        rows = (*_groups(range(NETWORKS)), *rows_of(cards, {}))
        filled = _timed(partial(_fill, northbound, rows))
        wholes = [_timed(partial(_compare, northbound, rows)) for _ in range(3)]
        turns = [
            (_timed(partial(_add_card, northbound, number)), _timed(partial(_add_bare, northbound, number)))
            for number in range(TURNS)
        ]
    return {
        "rows": len(rows), "fill_s": filled / 1e3, "comparison_s": max(wholes) / 1e3,
        "card_ms": median(own for own, _ in turns), "bare_ms": median(other for _, other in turns),
        "card_to_bare": median(own / other for own, other in turns),
    }  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        changes = group_change.measure(Path(directory))
    found = [
        *measured("networks", "20,000 ports", "", _whole()), *measured("networks", "group change", "", changes)
    ]  # fmt: skip
    write(found, Path("build/bench/networks.json"))
    for row in found:
        print(f"{row.case:15} {row.metric:15} {row.value:.4g}")


if __name__ == "__main__":
    main()
