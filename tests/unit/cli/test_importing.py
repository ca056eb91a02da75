# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

from orchestrator.cli.inventory.importing import split_present
from orchestrator.cli.inventory.wanted import WantedHost


def test_a_large_inventory_is_compared_with_what_is_enrolled_within_seconds() -> None:
    wanted = [
        WantedHost(
            name=f"gpu-{number}", called=f"gpu-{number}", address=f"gpu-{number}.test", port=22, user="root",
            gpus="all", key_file=None, fingerprint=None,
        )
        for number in range(10_000)
    ]  # fmt: skip
    hosts = [{"name": "gpu-7", "address": "gpu-7.test", "port": 22, "state": "ready"}]
    began = time.process_time()
    new, present = split_present(hosts, wanted)
    assert time.process_time() - began < 5
    assert (len(new), [one.name for one in present]) == (9_999, ["gpu-7"])
