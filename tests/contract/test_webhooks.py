# SPDX-License-Identifier: Apache-2.0
"""Addresses are told what happens, by one controller, in order, again after a failure, and no tenant of another's."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, NotFound, Retryable
from orchestrator.core.event import EventIds
from orchestrator.core.tenancy.tenant import Tenant
from orchestrator.core.webhook import MAX_OF_TENANT
from orchestrator.services.events import EventService
from orchestrator.services.webhooks import WebhookDelivery, WebhookService
from orchestrator.store.database import Store
from tests.fakes.fake_world import CountedIds, FakeClock
from tests.fakes.new_database import migrated, new_url
from tests.fakes.tenancy import KEY
from tests.fakes.webhooks import FakeSender

URL = "https://example.org/hook"
DAY_S = 86_400.0


class AtOnce(ThreadPoolExecutor):
    """Does what it is given before it returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(fn(*args, **kwargs))
        return done


class Scene:
    def __init__(self, store: Store) -> None:
        self.store, self.clock, self.sender = store, FakeClock(), FakeSender()
        self.events = EventService(store=store, ids=EventIds(KEY))
        self.hooks = WebhookService(
            store=store, clock=self.clock, ids=CountedIds(), events=self.events, sender=self.sender
        )
        with store.begin() as tx:
            for name in ("red", "blue"):
                tx.tenants.add(Tenant(name=name, created_at=0.0))

    def controller(self, *, leads: bool = True) -> WebhookDelivery:
        return WebhookDelivery(
            store=self.store, clock=self.clock, events=self.events, sender=self.sender, leads=lambda: leads,
            pool=AtOnce(),
        )  # fmt: skip

    def happen(self, *names: str, tenant: str = "red") -> None:
        for name in names:
            with self.store.begin() as tx:
                tx.events.note("vm", name, "state", tenant=tenant, host="h1", state="running")

    def told(self) -> list[str]:
        return [str(event["name"]) for event in self.sender.events(URL)]


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "sqlite":
        (tmp_path / "d.sqlite").write_bytes(migrated(KEY))
        url = f"sqlite:///{tmp_path / 'd.sqlite'}"
    else:
        url = new_url(request.getfixturevalue("postgres"), KEY)
    store = Store(url, key=KEY, new_site="site")
    yield Scene(store)
    store.close()


def test_a_tenant_is_told_what_is_its_own_from_then_on_in_order_and_no_host(scene: Scene) -> None:
    scene.happen("before")
    scene.hooks.create("red", "hook", URL, ["vm"])
    scene.happen("a", "b")
    scene.happen("sibling", tenant="blue")
    scene.happen("c")
    delivery = scene.controller()
    delivery.round()
    delivery.round()
    assert scene.told() == ["a", "b", "c"]
    first = scene.sender.events(URL)[0]
    assert (first["noun"], first["tenant"], first["state"], first["host"]) == ("vm", "red", "running", None)
    assert next(headers["Vgpuctl-Event"] for _, headers, _ in scene.sender.taken) == first["id"]


def test_the_pool_is_told_everything(scene: Scene) -> None:
    scene.hooks.create("*", "hook", URL, [])
    scene.happen("a")
    scene.happen("b", tenant="blue")
    scene.controller().round()
    assert scene.told() == ["a", "b"]
    assert {event["host"] for event in scene.sender.events(URL)} == {"h1"}


def test_only_the_controller_that_leads_tells_and_another_goes_on_where_it_was(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, [])
    scene.happen("a")
    scene.controller(leads=False).round()
    assert scene.told() == []
    scene.controller().round()
    scene.happen("b")
    scene.controller().round()
    assert scene.told() == ["a", "b"]


def test_many_events_are_told_round_by_round(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, ["vm"])
    names = [str(number) for number in range(120)]
    with scene.store.begin() as tx:
        for name in names:
            tx.events.note("vm", name, "state", tenant="red")
    delivery = scene.controller()
    for _ in range(4):
        delivery.round()
    assert scene.told() == names


def test_who_answers_slowly_leaves_its_thread_to_others_and_is_told_everything(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, [])
    names = [str(number) for number in range(6)]
    scene.happen(*names)
    scene.sender.answers = partial(scene.clock.sleep, 9.0)
    delivery = scene.controller()
    for _ in range(4):
        begun = scene.clock.monotonic()
        delivery.round()
        assert scene.clock.monotonic() - begun <= 20.0
    assert scene.told() == names


def test_who_is_down_is_told_later_and_later_and_nothing_is_left_out(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, [])
    scene.hooks.create("blue", "other", "https://example.org/other", [])
    scene.sender.down.add(URL)
    scene.happen("a")
    scene.happen("x", tenant="blue")
    delivery, tries = scene.controller(), list[int]()
    for _ in range(12):
        delivery.round()
        scene.clock.sleep(1.0)
        tries.append(scene.hooks.get("red", "hook").failed)
    assert tries[-1] == 3
    assert len(scene.sender.events("https://example.org/other")) == 1
    scene.sender.down.clear()
    scene.happen("b")
    scene.clock.sleep(1000.0)
    delivery.round()
    assert scene.told() == ["a", "b"]
    assert (scene.hooks.get("red", "hook").failed, scene.hooks.get("red", "hook").why) == (0, None)


def test_one_that_was_down_for_a_day_is_dead_and_a_test_that_is_taken_revives_it(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, [])
    scene.sender.down.add(URL)
    scene.happen("a")
    delivery = scene.controller()
    assert delivery.health().error is None
    for _ in range(2):
        delivery.round()
        scene.clock.sleep(DAY_S)
    delivery.round()
    assert scene.hooks.get("red", "hook").dead
    assert "vgpuctl webhook test hook --tenant red" in str(delivery.health().error)
    failed = scene.hooks.get("red", "hook").failed
    scene.clock.sleep(DAY_S)
    delivery.round()
    assert scene.hooks.get("red", "hook").failed == failed
    with pytest.raises(Retryable):
        scene.hooks.test("red", "hook")
    scene.sender.down.clear()
    scene.hooks.test("red", "hook")
    delivery.round()
    assert scene.told() == ["hook", "a"]
    assert delivery.health().error is None


def test_of_a_dead_one_of_the_pool_a_command_is_named_that_a_shell_takes_as_it_is(scene: Scene) -> None:
    scene.hooks.create("*", "hook", URL, [])
    scene.sender.down.add(URL)
    scene.happen("a")
    delivery = scene.controller()
    for _ in range(3):
        delivery.round()
        scene.clock.sleep(DAY_S)
    health = delivery.health()
    assert shlex.split(str(health.error))[-6:] == ["vgpuctl", "webhook", "test", "hook", "--tenant", "*"]
    assert "'*'" in str(health.error)
    assert health.failed == 0


def test_what_is_no_longer_kept_is_told_as_a_gap(scene: Scene) -> None:
    scene.hooks.create("red", "hook", URL, [])
    scene.happen("a", "b", "c")
    with scene.store.begin() as tx:
        tx.events.prune(kept=1, before=0.0, recent=1e12, most=100)
    delivery = scene.controller()
    delivery.round()
    delivery.round()
    assert [event["noun"] for event in scene.sender.events(URL)] == ["gap", "vm"]


def test_names_and_numbers_of_webhooks_are_bounded_and_those_of_others_unknown(scene: Scene) -> None:
    for number in range(MAX_OF_TENANT):
        scene.hooks.create("red", f"hook-{number}", URL, [])
    for name, code in (("hook-1", "webhook.exists"), ("more", "webhook.too_many")):
        with pytest.raises(Conflict) as caught:
            scene.hooks.create("red", name, URL, [])
        assert caught.value.code == code
    for call in (scene.hooks.get, scene.hooks.delete, scene.hooks.test):
        with pytest.raises(NotFound) as missing:
            call("blue", "hook-1")
        assert missing.value.code == "webhook.unknown"


def test_a_webhook_goes_with_its_secret_when_it_is_deleted_and_when_its_tenant_is(scene: Scene) -> None:
    secret = scene.hooks.create("red", "one", URL, [])[1]
    scene.hooks.create("red", "two", URL, [])
    assert len(secret) > 30
    scene.hooks.delete("red", "one")
    with scene.store.begin() as tx:
        assert len([name for name in tx.secrets.ids() if name.startswith("webhook:")]) == 1
        tx.webhooks.remove_of("red")
        assert [name for name in tx.secrets.ids() if name.startswith("webhook:")] == []
        assert tx.webhooks.list() == ()
