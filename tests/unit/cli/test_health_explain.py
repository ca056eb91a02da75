# SPDX-License-Identifier: Apache-2.0
"""What ``health explain`` says of a GPU whose reset failed: the evidence, and the commands of a person."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orchestrator.api.schemas.gpu_health import GpuHealthAnswer
from orchestrator.cli.commands.health import _gpu_lines, words_of_reset
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import MAX_EVIDENCE, GpuHealth, failed_reset, quarantined, went_well
from orchestrator.services.hosts.gpu_health import KnownHealth


def answered(health: GpuHealth) -> dict[str, Any]:
    answer = GpuHealthAnswer.of(KnownHealth(host="gpu-1", gpu="0000:41:00.0", health=health))
    return answer.model_dump(mode="json")


def lines(health: GpuHealth) -> str:
    return "\n".join(_gpu_lines(answered(health)))


def test_a_reset_that_went_well_says_in_which_state_the_gpu_is_then() -> None:
    closed = quarantined(None, 9.0, by="eva", reason="fan 3 is loud")
    said = "GPU 0000:41:00.0 of gpu-1 was reset and is well; it is "
    back = "'vgpuctl health return gpu-1 0000:41:00.0 --reason TEXT'"
    assert words_of_reset(answered(closed)) == f"{said}quarantined, until {back}"
    assert words_of_reset(answered(went_well(closed, 9.0))).startswith(f"{said}watch, until a day without")


def test_of_a_reset_that_failed_it_shows_the_evidence_and_the_reboot_by_hand() -> None:
    signals = [GpuSignal(name="xid-79", text="fell\x1b off the bus", at=7)]
    failed = failed_reset(None, 9.0, by="health", why="it reads as ff", signals=signals, output="one\n\ntwo\x07\n")
    shown = lines(failed)
    assert all(line in shown for line in ("Xid 79: fell  off the bus", "one", "two"))
    assert "\x1b" not in shown
    order = [shown.rindex(step) for step in ("host reboot", "health return")]
    assert order == sorted(order)
    assert "host reboot" not in lines(quarantined(None, 9.0, by="eva", reason="fan 3 is loud"))


def test_what_is_kept_of_a_failed_reset_is_bounded() -> None:
    signals = [GpuSignal(name=f"xid-{number}", text="x" * 200, at=number) for number in range(500)]
    failed = failed_reset(None, 9.0, by="health", why="y" * 9000, signals=signals, output="z" * 90_000)
    assert len(failed.evidence) == MAX_EVIDENCE + 1
    assert failed.evidence[-2].startswith("Xid 499"), "the newest"
    assert sum(map(len, asdict(failed)["evidence"])) < 6000


def test_a_virtual_function_names_its_gpu_and_what_empties_each() -> None:
    signal = GpuSignal(name="aer-fatal", at=7, function="0000:41:00.4")
    health = GpuHealth(state="unfit", since=9.0, cause="it must be reset first: fatal PCIe errors")
    known = KnownHealth(host="gpu-1", gpu=signal.function, health=health, signals=(signal,), function_of="0000:41:00.0")
    shown = "\n".join(_gpu_lines(GpuHealthAnswer.of(known).model_dump(mode="json")))
    assert "0000:41:00.0" in shown
    order = [
        shown.index(f"vgpuctl health {step}")
        for step in ("empty gpu-1 0000:41:00.4", "empty gpu-1 0000:41:00.0", "reset gpu-1 0000:41:00.0")
    ]
    assert order == sorted(order)
