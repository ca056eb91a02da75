# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server, and how long each answer takes, in milliseconds as a client sees them."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.client.client import Client
from orchestrator.client.connection import path_of
from orchestrator.client.location import SOCKET_NAME
from tests.bench.server_path.site import PROFILE, Site, wish
from tests.bench.server_path.waiting import waiting_clients

PATIENCE_S: Final = 90.0
"""For all samples of one figure; a server that is too slow gives fewer."""
CREATES: Final = 150
PACE_S: Final = 0.25
"""From one create to the next: two cores that also run hosts and database keep up with their operations."""
ASKED: Final = 40
LOOKS: Final = 5
IDLE_S: Final = 62.0
"""Two rounds of looks."""
WAITING: Final = 500
GETS: Final = 400

Values = Iterator[tuple[str, float]]


def timed(ask: Callable[[], object], most: int, pace_s: float = 0.0) -> list[float]:
    """Milliseconds of each answer, one after the other."""
    took: list[float] = []
    end = time.monotonic() + PATIENCE_S
    for _ in range(most):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(max(0.0, pace_s - took[-1] / 1000))
        if time.monotonic() > end:
            break
    return took


def p99(took: list[float]) -> float:
    """The slowest of fewer than a hundred."""
    return statistics.quantiles(took, n=100)[98] if len(took) >= 100 else max(took)


def measured(site: Site) -> Values:
    """Figures of a started server, in the order of what they leave behind."""
    client = site.client()
    yield "idle_core_percent", _idle(site)
    names = (f"vm-{number}" for number in itertools.count())

    def create() -> None:
        client.create_vm(wish(next(names)))

    used = site.core_seconds()
    took = timed(create, CREATES, PACE_S)
    yield "create_p50_ms", statistics.median(took)
    yield "create_p99_ms", p99(took)
    _settle(client)
    yield "create_with_operation_core_ms", (site.core_seconds() - used) / len(took) * 1000
    yield from _questions(site, client)
    yield from _after_looks(client, create)
    yield "get_p99_ratio_500_waiting", _waiting(site, client, next(names))
    yield "rss_mib", site.rss_mib()


def _questions(site: Site, client: Client) -> Values:
    """Also the server's processor time for each answer, looks beside it included: that does not grow with what else
    this machine has to do."""
    question = {"profile": PROFILE, "vcpus": 2, "memory_mib": 1024}
    asked: dict[str, Callable[[], object]] = {
        "plan": lambda: client.plan_vm(wish("planned")),
        "explain": lambda: client.explain(question),
        "capacity": lambda: client.capacity({"profile": PROFILE}),
        "gpu_map_page": lambda: client.connection.call("GET", path_of("gpu-map")),
    }
    for name, ask in asked.items():
        used = site.core_seconds()
        took = timed(ask, ASKED)
        yield f"{name}_p50_ms", statistics.median(took)
        yield f"{name}_core_ms", (site.core_seconds() - used) / len(took) * 1000


def _after_looks(client: Client, create: Callable[[], None]) -> Values:
    """Every host is looked at, then a VM is asked for, and that some times."""
    rounds, creates = [], []
    for _ in range(LOOKS):
        rounds += timed(lambda: client.observe_findings(None), 1)
        creates += timed(create, 1)
        if sum(rounds) > PATIENCE_S * 1000:
            break
    yield "look_round_s", statistics.median(rounds) / 1000
    yield "create_after_looks_p50_ms", statistics.median(creates)


def _settle(client: Client) -> None:
    """Until no operation runs any more, or for a while."""
    end = time.monotonic() + PATIENCE_S
    while client.operations(active=True, limit=1) and time.monotonic() < end:
        time.sleep(1)


def _idle(site: Site) -> float:
    used, began = site.core_seconds(), time.monotonic()
    time.sleep(IDLE_S)
    return 100 * (site.core_seconds() - used) / (time.monotonic() - began)


def _waiting(site: Site, client: Client, name: str) -> float:
    """How much longer the slowest reads take while clients wait for an operation that does not end."""
    _settle(client)
    with site.hosts_silent():
        operation = str(client.create_vm(wish(name))["operation"])
        time.sleep(3)
        revision = client.operation(operation)["revision"] or 0
        alone = p99(timed(lambda: client.vm("vm-0", "default"), GETS))
        with waiting_clients(WAITING, site.state / SOCKET_NAME, operation, revision):
            another = site.client()  # the server closes a connection on which nothing is asked for five seconds
            among = p99(timed(lambda: another.vm("vm-0", "default"), GETS))
    return among / alone
