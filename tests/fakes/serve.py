# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.fakes.serve``: the real server process over :class:`tests.fakes.services.InMemory`."""

from __future__ import annotations

import sys

from orchestrator.api.limits import Activity
from orchestrator.api.process import only_one, serve_until_done
from orchestrator.api.services import Process
from orchestrator.client.location import state_directory
from tests.fakes.services import InMemory
from tests.fakes.world import EPOCH


def main() -> None:
    state = state_directory()
    state.mkdir(parents=True, exist_ok=True)
    services = InMemory()
    if "--empty" not in sys.argv:
        services.furnish()
    with only_one(state, 0):
        serve_until_done(
            state, services.as_services(), Process(started_at=EPOCH, idle_seconds=None, activity=Activity())
        )


if __name__ == "__main__":
    main()
