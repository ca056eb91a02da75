# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, each with a connection of its own, each asking again as soon as it was answered."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orchestrator.client.client import Client
from tests.fakes.running import client_of

CLIENTS: Final = 64
REQUESTS: Final = 20
"""Of each client."""


def under_load(state: Path, request: Callable[[Client], object]) -> dict[str, float]:
    """Milliseconds between question and answer; client and server share this machine."""
    together = threading.Barrier(CLIENTS)
    took: list[float] = []

    def one() -> None:
        client = client_of(state)
        request(client)
        together.wait()
        for _ in range(REQUESTS):
            began = time.perf_counter()
            request(client)
            took.append(time.perf_counter() - began)
        client.connection.close()

    threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    assert len(took) == CLIENTS * REQUESTS, "a request failed"
    hundredths = statistics.quantiles(took, n=100)
    return {
        "p50_ms": hundredths[49] * 1000,
        "p99_ms": hundredths[98] * 1000,
        "requests_per_s": CLIENTS * (REQUESTS + 1) / seconds,
    }
