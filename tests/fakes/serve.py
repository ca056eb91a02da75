# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.fakes.serve``: the real server process over :class:`tests.fakes.services.InMemory`."""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.api.limits import Activity
from orchestrator.api.listening import tls_of
from orchestrator.api.process import only_one, serve_until_done
from orchestrator.api.services import Process
from orchestrator.client import version
from orchestrator.client.location import state_directory
from tests.fakes.services import InMemory
from tests.fakes.world import EPOCH


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default=version.VERSION)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--idle-seconds", type=float)
    parser.add_argument("--tls", nargs=3, metavar=("ADDRESS", "CERTIFICATE", "KEY"))
    parser.add_argument("--guest-port", type=int)
    wanted = parser.parse_args()
    version.VERSION = wanted.version
    state = state_directory()
    state.mkdir(parents=True, exist_ok=True)
    services = InMemory()
    services.record_enrolled()
    services.vms.guest_port = wanted.guest_port
    if wanted.busy:
        services.world.begin("create_vm", "nobody", None, lambda: None)
    process = Process(started_at=EPOCH, idle_seconds=wanted.idle_seconds, activity=Activity())
    address, certificate, key = wanted.tls or (None, None, None)
    tls = tls_of(address, Path(certificate or "."), Path(key or "."))
    with only_one(state, 0):
        serve_until_done(state, services.as_services(), process, tls)


if __name__ == "__main__":
    main()
