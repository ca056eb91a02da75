# SPDX-License-Identifier: Apache-2.0
"""1,000 hosts, 20,000 ports in 1,000 networks: one card against the bare transaction, and the whole comparison, as they
take turns: ``make bench-networks``. Rows go to build/bench/networks.json."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.northbound.networks import TABLES, Card, card_rows, network_rows, rows_of
from orchestrator.core.northbound.rows import difference, inserted, left_over, operations_of
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.vms.network import Network
from tests.bench.placement.rows import rows_of as measured
from tests.bench.placement.rows import write
from tests.fakes.ovn_databases import real_ovn

HOSTS, NETWORKS, CARDS = 1000, 1000, 20
TURNS = 40


def _network(number: int) -> tuple[Network, OvnNetwork]:
    return Network(name=f"t{number}.net"), OvnNetwork(id=f"net-{number}", subnets=("10.0.0.0/24",))


def _card(network: int, number: int) -> Card:
    host = f"host-{(network * CARDS + number) % HOSTS}"
    return Card(
        vm=f"vm-{network}-{number}", name=f"vm-{number}", number=0, addresses=(f"10.0.0.{number + 2}",), hosts=(host,)
    )


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, real_ovn(Path(directory)) as ovn:
        ovn.end("northd")  # its work is OVN's own
        northbound = OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)
        rows = tuple(
            rows_of(
                ((*_network(number), [_card(number, card) for card in range(CARDS)]) for number in range(NETWORKS)), {}
            )
        )

        def fill() -> None:
            with northbound.open() as session:
                left = iter(difference(rows, {}, "site"))
                while some := tuple(islice(left, 1000)):
                    session.change(operations_of(some))

        def whole() -> None:
            with northbound.open() as session:
                existing = session.read_all("site", TABLES)
                assert (*difference(rows, existing, "site"), *left_over(rows, existing, "site")) == ()

        def card(number: int) -> None:
            network = _network(number)
            new = card_rows(*network, _card(number, 100))
            with northbound.open() as session:
                session.change(inserted(new, network_rows(*network), "site"))

        def bare(number: int) -> None:
            network = _network(number)
            wanted = card_rows(*network, _card(number, 101))
            with northbound.open() as session:
                session.change(operations_of(difference(wanted, {}, "site")))

        filled = _timed(fill)
        wholes = [_timed(whole) for _ in range(3)]
        turns = [(_timed(partial(card, number)), _timed(partial(bare, number))) for number in range(TURNS)]
        report = {
            "rows": len(rows), "fill_s": filled / 1e3, "comparison_s": max(wholes) / 1e3,
            "card_ms": median(own for own, _ in turns), "bare_ms": median(other for _, other in turns),
            "card_to_bare": median(own / other for own, other in turns),
        }  # fmt: skip
        rows_made = measured("networks", "20,000 ports", "", report)
        write(rows_made, Path("build/bench/networks.json"))
        for row in rows_made:
            print(f"{row.metric:15} {row.value:.4g}")


if __name__ == "__main__":
    main()
