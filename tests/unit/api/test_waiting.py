# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from anyio import to_thread
from starlette.requests import Request
from starlette.types import Message

from orchestrator.api import waiting
from orchestrator.api.waiting import Waiting
from orchestrator.core.errors import Retryable
from orchestrator.core.operation import Watched
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY, T4_HOST, ControlPlane, create_vm, plane_with

CLIENTS = 500
LONG_S = 3600.0


class Client:
    """As the application sees it: stays until it hangs up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)

    async def _receive(self) -> Message:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}


@dataclass
class Scene:
    plane: ControlPlane
    waiting: Waiting
    first: Watched

    @property
    def operation(self) -> str:
        return self.first.operation.id

    @property
    def revision(self) -> int:
        return self.first.revision

    def begin(self, client: Client, tenant: str | None = None) -> asyncio.Task[Watched]:
        return asyncio.ensure_future(
            self.waiting.until_changed(
                self.first, since=self.revision, timeout_s=LONG_S, request=client.request, tenant=tenant
            )
        )

    async def all_wait(self, clients: int) -> None:
        """Until as many wait and nothing is being read."""
        while (
            len([one for watch in self.waiting.watches.values() for one in watch.watchers]) != clients
            or to_thread.current_default_thread_limiter().borrowed_tokens
        ):
            await asyncio.sleep(0.01)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with plane_with(tmp_path, T4_HOST) as plane:
        operation = str(plane.services.vms.create(create_vm()).operation)
        yield Scene(plane, Waiting(plane.services.operations), plane.services.operations.watched(operation))


def test_a_commit_wakes_five_hundred_clients_that_wait_and_hold_no_thread(scene: Scene) -> None:
    async def play() -> list[Watched]:
        waits = [scene.begin(Client()) for _ in range(CLIENTS)]
        await scene.all_wait(CLIENTS)
        await to_thread.run_sync(scene.plane.services.operations.cancel, scene.operation)
        return await asyncio.gather(*waits)

    assert {watched.revision for watched in asyncio.run(play())} == {scene.revision + 1}
    assert scene.waiting.watches == {}


def test_what_another_controller_commits_is_seen_too(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ELSEWHERE_S", 0.02)
    other = Store(f"sqlite:///{tmp_path / 'vgpuctl.sqlite'}", key=KEY, new_site="site")

    async def play() -> Watched:
        wait = scene.begin(Client())
        await scene.all_wait(1)
        with other.begin() as tx:
            tx.operations.request_cancel(scene.operation)
        return await wait

    assert asyncio.run(play()).revision == scene.revision + 1
    other.close()


def test_what_was_committed_between_reading_and_waiting_is_told_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ELSEWHERE_S", LONG_S)

    async def play() -> Watched:
        scene.plane.services.operations.cancel(scene.operation)
        return await scene.begin(Client())

    assert asyncio.run(play()).revision == scene.revision + 1


def test_nobody_waits_for_a_client_that_has_hung_up(scene: Scene) -> None:
    async def play() -> Watched:
        client = Client()
        wait = scene.begin(client)
        await scene.all_wait(1)
        client.hung_up.set()
        return await wait

    assert asyncio.run(play()).revision == scene.revision
    assert scene.waiting.watches == {}


def test_a_server_that_leaves_answers_everybody_who_waits(scene: Scene) -> None:
    async def play() -> list[Watched]:
        waits = [scene.begin(Client()) for _ in range(3)]
        await scene.all_wait(3)
        scene.waiting.close()
        return [*await asyncio.gather(*waits), await scene.begin(Client())]

    assert {watched.revision for watched in asyncio.run(play())} == {scene.revision}


def test_every_commit_of_an_operation_is_told_from_its_beginning_to_its_end(scene: Scene) -> None:
    operations, seen = scene.plane.services.operations, [scene.revision]

    def told(as_it_is: Watched | None) -> None:
        stored = operations.watched(scene.operation)
        told = stored if as_it_is is None else as_it_is
        assert replace(told.operation, ended_turn=None) == replace(stored.operation, ended_turn=None)
        seen.append(told.revision)

    leave = operations.listen(scene.operation, told)
    scene.plane.engine.drain()
    assert operations.watched(scene.operation).operation.state == "done"
    assert seen == list(range(scene.revision, operations.watched(scene.operation).revision + 1))
    leave()
    with scene.plane.store.begin() as tx:
        tx.operations.request_cancel(scene.operation)
    assert seen[-1] == operations.watched(scene.operation).revision - 1


def test_a_tenant_waits_so_often_and_others_and_whoever_watches_the_pool_wait_as_before(scene: Scene) -> None:
    async def play() -> list[Watched]:
        mine = [scene.begin(Client(), "red") for _ in range(waiting.MAX_WAITS_OF_TENANT)]
        await scene.all_wait(len(mine))
        for _ in range(600 - len(mine)):
            with pytest.raises(Retryable) as refused:
                await scene.begin(Client(), "red")
            assert refused.value.code == "server.waits_busy"
        others = [scene.begin(Client(), tenant) for tenant in ("blue", "default", None) for _ in range(8)]
        await scene.all_wait(len(mine) + len(others))
        mine.pop().cancel()
        await scene.all_wait(len(mine) + len(others))
        mine.append(scene.begin(Client(), "red"))
        await scene.all_wait(len(mine) + len(others))
        await to_thread.run_sync(scene.plane.services.operations.cancel, scene.operation)
        return await asyncio.gather(*mine, *others)

    assert {watched.revision for watched in asyncio.run(play())} == {scene.revision + 1}
    scene.waiting.check_room("red")
    assert not scene.waiting.watches
