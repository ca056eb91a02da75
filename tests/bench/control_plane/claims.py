# SPDX-License-Identifier: Apache-2.0
"""Claims per second against the same rows inserted bare: same database, same run, in turns.

A claim is one transaction: the VM's row, its slots, its share of CPU, memory and disk, and an audit record.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pysqlite3 import dbapi2 as sqlite
from sqlalchemy import Engine, create_engine, event, insert

from orchestrator.core.vms.claim import Claim, DeviceClaim
from orchestrator.core.vms.vm import Vm
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.rows import vm_values
from orchestrator.store.tables import audit, gpu_cuts, host_claims, slot_claims, vms
from tests.bench.placement.rows import Row, rows_of
from tests.contract.store.test_store import AMPLE, IMAGE, KEY, host, vm
from tests.postgres.cluster import cluster

HOSTS, GPUS, SLOTS = 16, 8, 16
ROUNDS, PER_ROUND = 6, 60
CUT = "time_sliced:1024"
Slot = tuple[str, str, int]


@dataclass(frozen=True)
class Measured:
    claimed: list[Slot]
    seconds: list[float]
    """Of each claim."""
    bare_seconds: list[float]


def suite(policies: Sequence[str]) -> Iterator[Row]:
    if "sqlite" in policies:
        with tempfile.TemporaryDirectory() as directory:
            yield from _case("sqlite", f"sqlite:///{Path(directory) / 'claims.sqlite'}", controllers=1)
    if "postgresql" in policies:
        with cluster("max_connections=50") as postgres:
            yield from _case("postgresql", postgres.database(), controllers=2)


def _case(case: str, url: str, *, controllers: int) -> Iterator[Row]:
    _fleet(url)
    with multiprocessing.get_context("spawn").Pool(controllers) as pool:
        measured = pool.starmap(_controller, [(url, number, controllers) for number in range(controllers)], chunksize=1)
        contested = pool.starmap(_contest, [(url, number) for number in range(controllers)], chunksize=1)
    claims = [one for controller in measured for one in controller.seconds]
    bare = [one for controller in measured for one in controller.bare_seconds]
    got = [slot for controller in measured for slot in controller.claimed] + [s for one in contested for s in one]
    values = {
        "claims_per_s": controllers / statistics.mean(claims),
        "p99_ms": statistics.quantiles(claims, n=100)[98] * 1000,
        "double_claims": len(got) - len(set(got)),
        "bare_inserts_per_s": controllers / statistics.mean(bare),
        "ratio_to_bare_insert": statistics.mean(bare) / statistics.mean(claims),
    }
    yield from rows_of("claims", case, f"{controllers} controllers", values)


def _fleet(url: str) -> None:
    store = Store(url, key=KEY, new_site="bench")
    with store.begin() as tx:
        tx.images.add(IMAGE)
        for number in range(HOSTS):
            tx.hosts.add(replace(host(f"h{number}"), managed_gpus=tuple(_gpu(gpu) for gpu in range(GPUS))))
    store.close()
    cuts = [{"host": f"h{at}", "gpu": _gpu(gpu), "cut": CUT} for at in range(HOSTS) for gpu in range(GPUS)]
    engine = _bare_engine(url)
    with engine.begin() as db:
        db.execute(insert(gpu_cuts), cuts)
    engine.dispose()


def _gpu(number: int) -> str:
    return f"0000:{number + 16:02x}:00.0"


def _slots(hosts: range) -> list[Slot]:
    return [(f"h{at}", _gpu(gpu), slot) for at in hosts for gpu in range(GPUS) for slot in range(SLOTS)]


def _controller(url: str, number: int, controllers: int) -> Measured:
    """Claims and bare inserts in turns, on slots that no other controller wants."""
    mine = _slots(range(HOSTS - 1))[number::controllers]
    random.Random(number).shuffle(mine)
    measured = Measured([], [], [])
    store, bare = Store(url, key=KEY, new_site="bench"), _bare_engine(url)
    claim, insertion = _claiming(store), _inserting(bare)
    for turn in range(ROUNDS + 1):
        for way, seconds in ((claim, measured.seconds), (insertion, measured.bare_seconds)):
            for _ in range(PER_ROUND):
                slot = mine.pop()
                with _timed(seconds if turn else []):  # the first turn warms up
                    way(slot)
                measured.claimed.append(slot)
    store.close()
    bare.dispose()
    return measured


def _contest(url: str, number: int) -> list[Slot]:
    """What this controller got of the slots that all of them want."""
    wanted = _slots(range(HOSTS - 1, HOSTS))
    random.Random(number).shuffle(wanted)
    store, got = Store(url, key=KEY, new_site="bench"), []
    claim = _claiming(store)
    for slot in wanted:
        try:
            claim(slot)
        except ClaimLost:
            continue
        got.append(slot)
    store.close()
    return got


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - began)


def _vm(slot: Slot) -> Vm:
    made = vm(f"v{random.getrandbits(60):x}")
    return replace(made, id=f"{random.getrandbits(96):032x}", host=slot[0])


def _claiming(store: Store) -> Callable[[Slot], None]:
    def claim(slot: Slot) -> None:
        made = _vm(slot)
        device = DeviceClaim(gpu=slot[1], cut=CUT, slots=(slot[2],), function=None)
        with store.claim() as tx:
            tx.vms.add(made)
            tx.claims.take(
                Claim(vm=made.id, host=slot[0], devices=(device,), vcpus=1, memory_mib=1, disk_bytes=1),
                AMPLE,
            )
            tx.audit.append(at=0.0, actor="bench", action="create_vm", subject=made.id, outcome="begun")

    return claim


def _inserting(engine: Engine) -> Callable[[Slot], None]:
    def put(slot: Slot) -> None:
        made = _vm(slot)
        place = {"host": slot[0], "gpu": slot[1], "cut": CUT}
        with engine.begin() as db:
            db.execute(insert(vms).values(vm_values(made)))
            db.execute(insert(host_claims).values(vm=made.id, host=slot[0], vcpus=1, memory_mib=1, disk_bytes=1))
            db.execute(insert(slot_claims).values(**place, slot=slot[2], vm=made.id, device=0))
            db.execute(insert(audit).values(at=0.0, actor="bench", action="create_vm", subject=made.id, outcome="x"))

    return put


def _bare_engine(url: str) -> Engine:
    """Durable as the store's connections are, and nothing else."""
    if not url.startswith("sqlite"):
        return create_engine(url)
    engine = create_engine(url, module=sqlite)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite.Connection, _record: object) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    return engine
