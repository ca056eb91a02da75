# SPDX-License-Identifier: Apache-2.0
"""Another controller that answers for ever holds those who wait for readings for a moment only."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from orchestrator.adapters.controllers import readings
from orchestrator.adapters.controllers.peer_auth import fingerprint
from orchestrator.core.controller import Door
from tests.fakes.certificate import new_certificate
from tests.fakes.control_plane import T4_HOST, control_plane
from tests.fakes.dripping import BODY, HEAD, STATUS, dripping


@pytest.mark.parametrize("first", [BODY, HEAD, STATUS])
def test_a_controller_that_answers_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(readings, "ANSWER_S", 0.5)
    plane, (certificate, key) = control_plane(tmp_path), new_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with dripping(first, tls) as address:
        door = Door(name="slow", address=address, certificate=fingerprint(certificate), credential="0" * 64)
        with plane.store.begin() as tx:
            tx.controllers.beat("slow")
            tx.controllers.put_door(door)
        elsewhere, began = readings.ReadingsElsewhere(plane.store, "this", "shown"), time.monotonic()
        assert elsewhere.readings([T4_HOST], moments=1) == {}
        assert 0.4 < time.monotonic() - began < 3
        began = time.monotonic()
        assert elsewhere.readings([T4_HOST], moments=1) == {}
        assert time.monotonic() - began < 0.4, "it is left alone for a while"
    plane.store.close()
