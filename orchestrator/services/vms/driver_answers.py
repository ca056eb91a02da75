# SPDX-License-Identifier: Apache-2.0
"""What drivers have answered of vGPUs that would go on on GPUs: asked when somebody wants to know, kept for as long as
both say the same of themselves. A host answers for its own GPUs alone: it may hang, or lie."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.vgpu_metadata import MAX_QUESTIONS, VgpuQuestion
from orchestrator.core.hosts.host import Host
from orchestrator.core.moves.answers import NOT_ASKED, DriverAnswer
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import HostLink

MAX_ANSWERS: Final = 4096
"""Kept; a question has at most 4 KiB."""
ASK_S: Final = 2.0
"""For one page of hosts; whoever was not asked by then is said not to have been."""
_FAILED_S: Final = 30.0
"""Nobody is asked again before, and no page waits again for it."""


@dataclass(frozen=True, kw_only=True)
class AskedDrivers:
    """Safe to use from many threads."""

    link: HostLink
    clock: Clock
    _kept: OrderedDict[tuple[str, VgpuQuestion], tuple[DriverAnswer, float | None]] = field(default_factory=OrderedDict)
    """By name of the host: answer, and until when it is good; None: for ever."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, host: str, question: VgpuQuestion) -> DriverAnswer:
        """What is known of that host's."""
        with self._lock:
            answer, until = self._kept.get((host, question), (NOT_ASKED, None))
            return NOT_ASKED if until is not None and until <= self.clock.monotonic() else answer

    def ask(
        self, questions: Mapping[str, Sequence[VgpuQuestion]], hosts: Mapping[str, Host], end: float
    ) -> frozenset[str]:
        """Those of each host that nobody has answered, by ``end`` on the monotonic clock; a host may take longer by
        itself. Names of hosts whose questions have an answer now."""
        answered = set[str]()
        for name, its in questions.items():
            unknown = [question for question in its if self.answer(name, question) == NOT_ASKED][:MAX_QUESTIONS]
            host = hosts.get(name)
            if unknown and (host is None or host.state != "ready" or self.clock.monotonic() >= end):
                continue
            if host is not None and unknown:
                self._ask(host, unknown)
            answered.add(name)
        return frozenset(answered)

    def _ask(self, host: Host, questions: Sequence[VgpuQuestion]) -> None:
        until: float | None = None
        answers: Sequence[DriverAnswer]
        try:
            answers = self.link.vgpu_compatibility(host, questions)
        except VgpuctlError as error:
            answers = [f"did not answer ({error.message})"] * len(questions)
            until = self.clock.monotonic() + _FAILED_S
        with self._lock:
            for question, answer in zip(questions, answers, strict=True):
                self._kept[host.name, question] = answer, until
                self._kept.move_to_end((host.name, question))
            while len(self._kept) > MAX_ANSWERS:
                self._kept.popitem(last=False)
