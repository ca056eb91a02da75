# SPDX-License-Identifier: Apache-2.0
"""Readings of hosts that other controllers hear: they are asked when somebody asks here."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from typing import Final

from orchestrator.adapters.controllers.peer_auth import asked, credential_header
from orchestrator.core.controller import MAX_HOSTS_ASKED, Door
from orchestrator.core.errors import Retryable, Unknown, VgpuctlError
from orchestrator.core.foreign_json import parse_json
from orchestrator.core.readings.received import ReceivedFrame, received_from_dict
from orchestrator.store.database import Store

PATH: Final = "/controllers/readings"
ANSWER_S: Final = 3.0
"""People wait for it."""
PAUSE_S: Final = 10.0
"""How long a controller that did not answer is not asked again."""
_OK: Final = 200
log = logging.getLogger(__name__)


class ReadingsElsewhere:
    """Implements ports/readings.OtherControllers. Safe to call from many threads."""

    def __init__(self, store: Store, name: str, credential: str) -> None:
        """``name`` of this controller and the secret that it shows to the others."""
        self._store = store
        self._name = name
        self._headers = {**credential_header(name, credential), "Content-Type": "application/json"}
        self._paused_until: dict[str, float] = {}

    def readings(self, hosts: Collection[str], *, moments: int) -> Mapping[str, ReceivedFrame]:
        with self._store.read() as tx:
            doors = tx.controllers.living_doors()
        received: dict[str, ReceivedFrame] = {}
        for door in doors:
            missing = sorted(set(hosts) - received.keys())
            if door.name == self._name or not missing or self._paused_until.get(door.name, 0.0) > time.monotonic():
                continue
            try:
                for at in range(0, len(missing), MAX_HOSTS_ASKED):
                    received |= self._asked(door, missing[at : at + MAX_HOSTS_ASKED], moments)
            except VgpuctlError as error:
                self._paused_until[door.name] = time.monotonic() + PAUSE_S
                log.warning("readings of %s: %s: %s", door.name, error.message, error.details)
        return received

    def _asked(self, door: Door, hosts: list[str], moments: int) -> dict[str, ReceivedFrame]:
        """:raises Retryable: ``controller.unreachable``, ``controller.refused``; :raises Fatal, Unknown: as they say"""
        body = json.dumps({"hosts": hosts, "moments": moments}).encode()
        to = (door.address, door.certificate, PATH)
        with asked(*to, headers=self._headers, body=body, answer_s=ANSWER_S) as answer:
            if answer.status != _OK:
                raise Retryable("controller.refused", f"it answers {answer.status}")
            try:
                received = parse_json(answer.read())
            except ValueError as error:
                raise Unknown("controller.answer_invalid", "it sent no JSON") from error
        known = received if isinstance(received, dict) else {}
        return {host: received_from_dict(known[host]) for host in hosts if host in known}
