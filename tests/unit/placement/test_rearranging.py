# SPDX-License-Identifier: Apache-2.0
"""Moves that empty GPUs go into what is free before any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.moves.rearranging import Mover, Rearrangement
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.rules.named import OffHosts
from tests.unit.placement.fleets import ask, broken_rules, gpus, host, settle

TYPE = "NVIDIA L40S-12Q"


def plan(more: dict[str, Any], *, asks_apart: bool = False, **of_a: Any) -> list[tuple[str, str]]:
    """VMs and where they go. On a GPU of ``a`` is ``leaver``, beside one in use; ``later`` is alone on ``c``, and the
    only GPUs in use with room are that of ``a`` and one of ``b``, where one more fits."""
    views = [host(name, gpus("L40S", 1, "time_sliced")) for name in "cb"]
    views.append(host("a", gpus("L40S", 2, "time_sliced"), **of_a))
    engine, where = PlacementEngine(views), {"leaver": ("a", "g0"), "later": ("c", "g0")}
    asked = {"leaver": ask("leaver", TYPE, vcpus=4, **more), "later": ask("later", TYPE, vcpus=1, **more)}
    if asks_apart:
        asked["later"] = ask("later", TYPE, vcpus=1, apart_from_vms=("leaver",))
    stay = {f"b{number}": ("b", "g0") for number in range(3)} | {f"a{number}": ("a", "g1") for number in range(2)}
    for name, (at, gpu) in {**where, **stay}.items():
        request = ask(name, TYPE, host=at, gpu=gpu, **(more | {"vcpus": 4 if name == "leaver" else 1}))
        assert settle(engine, request)

    def mover(name: str) -> Mover | None:
        if name in stay:
            return None
        needs = (OffHosts(frozenset({where[name][0]})), *asked[name].needs)
        return Mover(request=replace(asked[name], needs=needs), goes=lambda *_: True)

    search = Rearrangement(engine, mover)
    search.empty_gpus(10)
    moves = [(move.vm, move.target) for move in search.moves]
    search.undo()
    assert broken_rules(engine) == []
    assert {name: engine.vms[name].host.view.name for name in where} == {"leaver": "a", "later": "c"}
    return moves


@pytest.mark.parametrize(("vcpus", "goes"), [(6, False), (7, True)])
def test_no_move_waits_for_what_another_one_leaves_of_a_host(vcpus: int, goes: bool) -> None:
    """Both begin at once, and each host is held until a move has ended. Of ``a`` six vCPUs are claimed."""
    assert plan({}, vcpus=vcpus) == [("leaver", "b"), *([("later", "a")] if goes else [])]


@pytest.mark.parametrize(("disk_gib", "goes"), [(30, False), (40, True)])
def test_nor_for_what_hosts_have_beside_cpus(disk_gib: int, goes: bool) -> None:
    assert plan({"disk_gib": 10}, disk_gib=disk_gib) == [("leaver", "b"), *([("later", "a")] if goes else [])]


def test_nor_for_a_host_that_one_to_stay_apart_from_leaves() -> None:
    assert plan({}, asks_apart=True) == [("leaver", "b")]
