# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from orchestrator.agent.timing import CallHangs, Gate, TooManyHungCalls


def test_results_and_errors_come_through() -> None:
    gate = Gate("x", limit_s=20)
    assert gate.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        gate.call(lambda: 1 // 0)


def test_hanging_calls_do_not_pile_up_and_the_gate_opens_again_when_they_end() -> None:
    gate, released = Gate("x", limit_s=0.01, most_hanging=2), threading.Event()
    for _ in range(2):
        with pytest.raises(CallHangs):
            gate.call(released.wait)
    with pytest.raises(TooManyHungCalls):
        gate.call(lambda: 7)
    released.set()
    for _ in range(1000):
        try:
            assert gate.call(lambda: 7, limit_s=20) == 7
            break
        except TooManyHungCalls:
            threading.Event().wait(0.01)
    else:
        pytest.fail("the gate stayed shut")
