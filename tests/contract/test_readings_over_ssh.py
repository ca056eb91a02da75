# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent import session
from orchestrator.agent.readings import broadcast
from orchestrator.agent.readings.broadcast import Readings
from orchestrator.core.readings.frame import MAX_SUBJECTS, HostFrame, Reading, frame_to_dict
from tests.contract.agent_over_ssh import Chain

GPU = Reading("gpu", "GPU-1", (("gpu_power_watts", ""),), array("d", [71.5]), facts={"name": "Tesla T4"})


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_EVENT_POLL_SECONDS", 0.02)


def reads(way: Chain, sample: Callable[[], HostFrame | None]) -> None:
    """How the agent reads its host from now on."""
    readings = Readings(sample, period_s=0.05)
    readings.start()
    object.__setattr__(way.agent, "readings", readings)


def counted() -> Callable[[], HostFrame]:
    """A frame for each number from 1 on."""
    numbers = itertools.count(1)
    return lambda: HostFrame(taken_at=float(next(numbers)), readings=(GPU,))


def test_frames_arrive_as_they_were_read(way: Chain, link: SshHostLink) -> None:
    reads(way, counted())
    watch = link.watch(way.host)
    first, second = next(watch), next(watch)
    assert first == HostFrame(taken_at=1.0, readings=(GPU,))
    assert isinstance(second, HostFrame)
    assert second.taken_at > 1.0
    link.close()
    assert all(isinstance(sent, HostFrame) for sent in watch)


def test_a_frame_that_is_none_is_left_out_and_told_once(
    way: Chain, link: SshHostLink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken_at_first(frame: HostFrame) -> dict[str, object]:
        return {"taken_at": "never"} if frame.taken_at < 4 else frame_to_dict(frame)

    reads(way, counted())
    monkeypatch.setattr(broadcast, "frame_to_dict", broken_at_first)
    sent = next(link.watch(way.host))
    assert isinstance(sent, HostFrame)
    assert sent.taken_at >= 4
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"{way.host.name} sends readings that are none: it has no time"]


def test_the_largest_frame_that_a_host_can_have_arrives(way: Chain, link: SshHostLink) -> None:
    many = tuple(replace(GPU, id=f"GPU-{number}") for number in range(MAX_SUBJECTS))
    reads(way, lambda: HostFrame(taken_at=1.0, readings=many))
    sent = next(link.watch(way.host))
    assert isinstance(sent, HostFrame)
    assert len(sent.readings) == MAX_SUBJECTS
