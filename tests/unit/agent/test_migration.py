# SPDX-License-Identifier: Apache-2.0
"""How long a guest may stand still when its domain moves."""

from __future__ import annotations

import threading

import libvirt
import pytest

from orchestrator.agent.libvirt import migration

PREPARES: int = 60
"""Times that it is asked before its memory was sent once: the other QEMU starts, disks are copied."""


class _Domain:
    """Stands still, when it may do so for 2.5 s."""

    def __init__(self) -> None:
        self.asked = 0
        self.limits: list[tuple[int, int]] = []
        self._may = threading.Event()

    def migrateToURI3(self, _uri: str, _parameters: object, _flags: int) -> None:  # noqa: N802 - libvirt's
        assert self._may.wait(30)

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        self.asked += 1
        later = {libvirt.VIR_DOMAIN_JOB_MEMORY_ITERATION: 2} if self.asked > PREPARES else {}
        return {libvirt.VIR_DOMAIN_JOB_DATA_PROCESSED: 7, **later}

    def state(self) -> tuple[int, int]:
        return (libvirt.VIR_DOMAIN_RUNNING if self.asked < PREPARES else libvirt.VIR_DOMAIN_PAUSED), 0

    def migrateSetMaxDowntime(self, limit_ms: int) -> None:  # noqa: N802 - libvirt's
        self.limits.append((self.asked, limit_ms))
        if limit_ms == 2500:
            self._may.set()


def test_the_pause_that_is_allowed_grows_only_once_its_memory_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "_POLL_S", 2.0**-12)
    monkeypatch.setattr(migration, "_PATIENCE", 4)
    domain = _Domain()
    moved = migration._Migration(domain, "qemu:///system", {}, migration.FLAGS, 900).run(lambda _: True)
    assert domain.limits == [(1, 900), (PREPARES + 4, 900), (PREPARES + 8, 1200), (PREPARES + 12, 2500)]
    assert moved.sent_bytes == 7
    assert 0 < moved.paused_ms < 30_000
