# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.engine.served STATE URL HOSTS [ACT MOMENT EFFECT]``: the server as it is shipped.

Only its hosts are those of a file. ``URL`` is ``-`` for SQLite in ``STATE``. At an effect one of those
with the same ``HOSTS`` kills or stops itself.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from orchestrator.api.limits import Activity
from orchestrator.api.process import only_one, serve_until_done
from orchestrator.api.services import Process
from orchestrator.server.bootstrap import build
from orchestrator.server.reach import Reach
from orchestrator.server.settings import Settings, load_settings
from orchestrator.sim.guests import SimulatedGuests
from orchestrator.store.database import Store
from tests.contract.engine.controller import acting
from tests.fakes.control_plane import scan
from tests.fakes.fake_world import FakeImages, FakeKeys
from tests.fakes.shared_hosts import SharedHosts


def main() -> None:
    directory, url, hosts, *act = sys.argv[1:]
    state = Path(directory)

    def reach(_settings: Settings, _store: Store) -> Reach:
        link = SharedHosts(Path(hosts), acting(Path(hosts).with_suffix(".reached"), act))
        return Reach(
            link=link,
            configurator=link,
            guests=SimulatedGuests(),
            scan_key=scan,
            keys=FakeKeys(),
            images=FakeImages(),
        )

    settings = load_settings(state=state, database_url=None if url == "-" else url)
    with only_one(state, 0):
        app = build(settings, reach)
        try:
            process = Process(started_at=time.time(), idle_seconds=None, activity=Activity())
            serve_until_done(state, app.services, process, None)
        finally:
            app.close()


if __name__ == "__main__":
    main()
