# SPDX-License-Identifier: Apache-2.0
"""Random operations on an engine over a fleet with every kind of cut, entered in a ledger as they happen."""

from __future__ import annotations

import random

from orchestrator.core.placement.views import HostView, Request
from tests.bench.placement.moves.repack import make_room
from tests.bench.placement.policies import PolicyEngine, PolicyName
from tests.unit.placement.fleets import ask, broken_rules, gpus, host
from tests.unit.placement.ledger import Ledger

PROFILES = (
    "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "NVIDIA H100XM-10C",
    "NVIDIA H100XM-40C", "NVIDIA L4-4Q", "NVIDIA L4-6Q", "NVIDIA L4-8Q", "NVIDIA L4-24Q", "gpu:1", "gpu:2", "gpu:4",
    "gpu:8", "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q",
)  # fmt: skip


def fleet() -> list[HostView]:
    return [
        *(host(f"h{i}", gpus("H100 SXM5 80GB", 8, "mig", "time_sliced"), fabric=True, vcpus=48) for i in range(2)),
        host("l4", gpus("L4", 4, "mixed", "time_sliced"), vcpus=24),
        host("pro", gpus("RTX PRO 6000 Blackwell Server Edition", 2, "mig"), vcpus=24),
        host("closed", gpus("L4", 2, "mixed"), cordoned=True),
    ]


class Exercise:
    """An engine that random operations are tried on. ``ledger.counts`` says how many of which."""

    def __init__(self, seed: int, policy: PolicyName = "vgpuctl") -> None:
        self.engine = PolicyEngine(fleet(), policy=policy)
        self.ledger = Ledger(fleet())
        self.rng = random.Random(seed)
        self._number = 0

    def operate(self) -> object:
        """One random operation; its visible result."""
        kind = self.rng.random()
        live = list(self.engine.vms)
        if kind < 0.35 and live:
            gone = self.rng.choice(live)
            self.engine.release(gone)
            self.ledger.give_back(gone)
            return gone
        request = self._request(live)
        moves = None
        done = self._settle(request)
        if not done and kind > 0.8:
            moves = make_room(self.engine, request)
            self.ledger.move(moves or ())
            done = moves is not None and self._settle(request)
        self.ledger.counts["refused"] += not done
        return moves, [(gpu.number, gpu.state) for gpu in self.engine.vms[request.vm_id].gpus] if done else None

    def run(self, operations: int, *, check_every: int) -> None:
        """Claims are checked one by one as they are made, the engine's indexes every ``check_every`` operations."""
        for number in range(operations):
            self.operate()
            if number % check_every == 0:
                self.check()
        self.check()

    def check(self) -> None:
        self.ledger.check(self.engine)
        assert broken_rules(self.engine) == []

    def _request(self, live: list[str]) -> Request:
        rng = self.rng
        self._number += 1
        return ask(
            f"v{self._number}", rng.choice(PROFILES), vcpus=rng.choice((0, 1, 2, 8)), count=rng.choice((1, 1, 1, 1, 2)),
            tenant=rng.choice(("t", "small")), host=rng.choice((None, None, None, "h1")),
            numa_strict=rng.random() < 0.1, migratable=rng.random() < 0.8,
            apart_from_vms=(rng.choice(live),) if live and rng.random() < 0.1 else (),
        )  # fmt: skip

    def _settle(self, request: Request) -> bool:
        plan = self.engine.plan(request)
        if plan is not None:
            self.ledger.claim(request, self.engine.take(request, plan))
        return plan is not None
