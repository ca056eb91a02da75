# SPDX-License-Identifier: Apache-2.0
"""How this controller is reached by the others, and the secret that it shows to them."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Final

from orchestrator.adapters.controllers.pinned import fingerprint
from orchestrator.adapters.state.keys import write_private
from orchestrator.core.controller import Door
from orchestrator.core.tenancy.tenant import digest_of
from orchestrator.store.database import Store

_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]", "::"})  # noqa: S104 - what a setting may say


def credential(path: Path) -> str:
    """Drawn at the first call."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode())
    return path.read_text(encoding="ascii").strip()


def announce_address(
    store: Store, name: str, *, listen: str | None, advertise: str | None, certificate: Path | None, shown: str
) -> None:
    """Write down where the others reach this controller; nowhere unless it listens. ``shown``: its secret."""
    with store.begin() as tx:
        if listen is None or certificate is None:
            tx.controllers.remove_door(name)
            return
        tx.controllers.put_door(
            Door(
                name=name,
                address=advertise or _reached(listen),
                certificate=fingerprint(certificate),
                credential=digest_of(shown),
            )
        )


def _reached(listen: str) -> str:
    host, _, port = listen.rpartition(":")
    return f"{socket.getfqdn() if host in _EVERYWHERE else host}:{port}"
