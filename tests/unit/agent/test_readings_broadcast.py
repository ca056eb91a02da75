# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from orchestrator.agent.readings import broadcast
from orchestrator.agent.readings.broadcast import Readings, Watch
from orchestrator.core.protocol import read_frame
from orchestrator.core.readings.frame import READINGS_BYTES, HostFrame, frame_from_dict

LIMIT_S = 30.0
PERIOD_S = 0.5
"""A frame is told for two of them: a test may wait for its turn as long."""


class Host:
    """Reads as a test lets it: one frame for each number that is put in; None is a moment that nothing can be read
    in, an exception is raised."""

    def __init__(self) -> None:
        self.moments: queue.Queue[float | Exception | None] = queue.Queue()
        self.reading = threading.Semaphore(0)

    def sample(self) -> HostFrame | None:
        self.reading.release()
        moment = self.moments.get(timeout=LIMIT_S)
        if isinstance(moment, Exception):
            raise moment
        return None if moment is None else HostFrame(taken_at=moment, readings=())

    def is_read(self, within_s: float = LIMIT_S) -> bool:
        return self.reading.acquire(timeout=within_s)


@contextmanager
def started(host: Host, period_s: float = PERIOD_S) -> Iterator[Readings]:
    readings = Readings(host.sample, period_s)
    readings.start()
    try:
        yield readings
    finally:
        host.moments.put(None)
        readings.stop()


def next_of(watch: Watch) -> HostFrame:
    """Waits for it."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if (message := watch.newer()) is not None:
            sent = read_frame(io.BytesIO(message), READINGS_BYTES)
            return frame_from_dict(sent and sent["readings"])
        time.sleep(0.001)
    raise AssertionError("no frame came")


def test_a_host_that_nobody_watches_is_not_read() -> None:
    host = Host()
    with started(host) as readings:
        assert not host.is_read(within_s=2 * PERIOD_S)
        with readings.watched() as watch:
            host.moments.put(1.0)
            assert next_of(watch).taken_at == 1.0
            assert host.is_read()
            assert host.is_read()
        host.moments.put(2.0)
        assert not host.is_read(within_s=2 * PERIOD_S)


def test_several_who_watch_share_one_reading() -> None:
    host = Host()
    with started(host, LIMIT_S) as readings, ExitStack() as stack:
        watches = [stack.enter_context(readings.watched()) for _ in range(5)]
        host.moments.put(7.0)
        assert [next_of(watch).taken_at for watch in watches] == [7.0] * 5
        assert host.moments.empty()
        assert [watch.newer() for watch in watches] == [None] * 5, "each has a frame once"


def test_who_is_slow_has_the_newest_frame_and_none_waits_for_it() -> None:
    host = Host()
    with started(host) as readings, readings.watched() as slow, readings.watched() as quick:
        for moment in range(5):
            host.moments.put(float(moment))
            assert next_of(quick).taken_at == moment
        assert next_of(slow).taken_at == 4
        assert slow.newer() is None


def test_a_reading_that_breaks_or_has_to_wait_costs_one_frame_alone(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    with started(host) as readings, readings.watched() as watch:
        for moment in (1.0, RuntimeError("a bug"), None, 2.0):
            host.moments.put(moment)
        seen = {next_of(watch).taken_at}
        while 2.0 not in seen:
            seen.add(next_of(watch).taken_at)
    assert [record.message for record in caplog.records] == ["reading the host broke"]


def test_a_frame_that_no_controller_would_take_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    with started(host) as readings, readings.watched() as watch:
        host.moments.put(1.0)
        next_of(watch)
        monkeypatch.setattr(broadcast, "READINGS_BYTES", 10)
        host.moments.put(2.0)
        assert host.is_read()
        assert host.is_read()
        assert host.is_read(), "the second frame is written"
        assert watch.newer() is None


def test_a_frame_that_is_older_than_two_periods_is_told_to_nobody() -> None:
    host = Host()
    with started(host) as readings:
        with readings.watched() as watch:
            host.moments.put(1.0)
            next_of(watch)
        time.sleep(3 * PERIOD_S)
        with readings.watched() as later:
            assert later.newer() is None
            host.moments.put(2.0)
            assert next_of(later).taken_at == 2.0
