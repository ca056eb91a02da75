# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.hostile.open_server``: a server that strangers reach, in a process with few descriptors that does
not wait long for them. A tenant ``red`` is there, with two tokens in the state directory."""

from __future__ import annotations

import argparse
import os
import resource
import threading
import time
from contextlib import suppress
from pathlib import Path

from orchestrator.adapters.state.clock import SystemClock
from orchestrator.api.listening import Tls
from orchestrator.api.protocols import PeerWebSocketProtocol, TimedHttpProtocol
from orchestrator.client.location import state_directory
from orchestrator.core.tenancy.tenant import Member
from orchestrator.oidc.identities import OidcIdentities
from orchestrator.oidc.provider import Provider
from orchestrator.server.telemetry import configure
from tests.contract.api.plane_server import serve
from tests.fakes.certificate import new_certificate
from tests.fakes.control_plane import control_plane
from tests.fakes.oidc_provider import CLIENT

DESCRIPTORS = 256
PATIENCE_S = 2.0


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--issuer")
    options.add_argument("--patience", type=float, default=PATIENCE_S)
    given = options.parse_args()
    configure("WARNING")
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    TimedHttpProtocol.SENT_WITHIN_S = {"head": given.patience, "body": given.patience}
    TimedHttpProtocol.READ_WITHIN_S = PeerWebSocketProtocol.READ_WITHIN_S = given.patience
    state = state_directory()
    state.mkdir(parents=True, exist_ok=True)
    plane = control_plane(state)
    plane.add_host("t4")
    plane.services.tenancy.tenants.create("red")
    plane.services.tenancy.tenants.put_member(Member(tenant="red", subject="oidc:ann", role="tenant-user"))
    (state / "token").write_text(plane.services.tenancy.tokens.create("red", "tenant-user", None)[1])
    certificate, key = new_certificate(state)
    threading.Thread(target=_take_all_when_told, args=(state,), daemon=True).start()
    identities = None
    if given.issuer is not None:
        identities = OidcIdentities(Provider(issuer=given.issuer), CLIENT, "groups", SystemClock())
    serve(state, plane, Tls(host="127.0.0.1", port=0, certificate=certificate, key=key), identities)


def _take_all_when_told(state: Path) -> None:
    """The file ``take`` asks for it, ``taken`` answers: something in the process has every descriptor that is free."""
    while not (state / "take").exists():
        time.sleep(0.02)
    (state / "taken").touch()
    with suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)


if __name__ == "__main__":
    main()
