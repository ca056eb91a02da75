# SPDX-License-Identifier: Apache-2.0
"""Programs and people who watch the fleet at a server that serves, goes and comes back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.client import Client
from orchestrator.client.generated import models
from orchestrator.client.opening import open_async_client
from orchestrator.core.event import EventIds
from tests.fakes.running import client_of, running_server
from tests.fakes.tenancy import KEY
from tests.fakes.typed import Cli, cli_of

SERVER = "tests.contract.api.plane_server"
LIMIT_S = 60


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    with running_server(tmp_path, module=SERVER) as directory:
        yield directory


@pytest.fixture
def cli(state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return cli_of(state, monkeypatch, capsys)


def name_of(event: models.Event | models.Gap) -> str:
    assert event["noun"] != "gap"
    return event["name"]


class Watching(threading.Thread):
    """A program that takes so many events about tenants."""

    def __init__(self, client: Client, most: int) -> None:
        super().__init__(daemon=True)
        self._events = client.events(nouns=["tenant"], last=1)
        self.names = [name_of(next(self._events))]
        self._most = most
        self.start()

    def run(self) -> None:
        self.names += [name_of(event) for event in islice(self._events, self._most - 1)]


def test_a_program_is_told_everything_once_and_in_order_though_the_server_is_killed_meanwhile(tmp_path: Path) -> None:
    with running_server(tmp_path, module=SERVER) as state:
        client_of(state).create_tenant("a")
        watching = Watching(client_of(state), 4)
        client_of(state).create_tenant("b")
    with running_server(tmp_path, module=SERVER) as state:
        for name in ("c", "d"):
            client_of(state).create_tenant(name)
        watching.join(LIMIT_S)
    assert watching.names == ["a", "b", "c", "d"]


def test_one_client_asks_other_things_while_it_is_told_what_happens(state: Path) -> None:
    client = client_of(state)
    client.create_tenant("a")
    names = []
    for event in client.events(last=1, nouns=["tenant"]):
        names.append(name_of(event))
        if len(names) == 3:
            break
        client.create_tenant("abc"[len(names)])
    assert names == ["a", "b", "c"]


def test_with_asyncio_it_is_the_same(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))

    async def course() -> list[Any]:
        async with open_async_client() as client:
            await client.create_tenant("a")
            names = [name_of(event) async for event in client.events(last=9, nouns=["tenant"], follow=False)]
            async for event in client.events(last=1, nouns=["tenant", "quota"]):
                if event["noun"] == "quota":
                    return [*names, event["details"]]
                await client.change_quota("a", {"vms": 3})
            return names

    assert asyncio.run(course())[-1] == {"resource": "vms"}


def test_a_person_is_shown_what_happened(state: Path, cli: Cli) -> None:
    client_of(state).create_tenant("a")
    shown = cli("events", "--noun", "tenant")
    assert (shown.code, shown.out.splitlines()[0].split()[:3]) == (0, ["AT", "AGE", "NOUN"])
    assert "created" in shown.out
    lines = cli("events", "--json", "--noun", "tenant", "--limit", "1").out.splitlines()
    (event,) = map(json.loads, lines)
    assert (event["name"], event["change"], event["tenant"]) == ("a", "created", "a")
    assert cli("events", "--after", event["id"], "--noun", "tenant", "--json").out == ""
    assert cli("events", "--tenant", "a", "-o", "jsonpath=.change").out.split() == ["created"]


def test_a_person_who_asks_for_what_is_no_longer_kept_is_told_that_it_is_not(state: Path, cli: Cli) -> None:
    client_of(state).create_tenant("a")
    restored = EventIds(KEY).of(10**9)  # of a database that this one was restored from
    listed = cli("events", "--after", restored)
    assert (listed.code, "no longer kept" in listed.err, "nothing has happened" in listed.out) == (0, True, True)
    assert cli("events").err == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--noun", "planet"), "cli.usage"), (("--after", "17"), "event.id_invalid"),
        (("--tenant", "nobody"), "tenant.unknown"),
    ],
)  # fmt: skip
def test_a_person_is_told_what_is_wrong(cli: Cli, words: tuple[str, ...], code: str) -> None:
    failed = cli("events", *words)
    assert (failed.code != 0, code in failed.err, failed.out) == (True, True, "")
