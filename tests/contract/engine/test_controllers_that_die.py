# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.engine.live_site import LIMIT_S, Site, one_of_each
from tests.fakes.control_plane import create_vm
from tests.fakes.relay import Relay
from tests.postgres.cluster import Cluster

SOCKET = ".s.PGSQL.5432"


def create(site: Site) -> str:
    operation = site.plane.services.vms.create(create_vm()).operation
    assert operation is not None
    return operation


@pytest.mark.parametrize(
    ("backend", "moment", "effect"),
    [("sqlite", "after", "MakeVgpu"), ("postgresql", "before", "DefineDomain")],
)
def test_a_killed_controller_finishes_its_operation_after_its_restart(
    site_on: Callable[[str], Site], backend: str, moment: str, effect: str
) -> None:
    site = site_on(backend)
    operation = create(site)
    killed = site.controller("one", "kill", moment, effect)
    assert killed.wait(LIMIT_S) == -signal.SIGKILL
    assert site.plane.services.operations.get(operation).state == "running"
    site.controller("one")
    assert site.finished(operation).state == "done"
    one_of_each(site.machine())


def test_another_controller_takes_over_from_a_killed_one(site_on: Callable[[str], Site]) -> None:
    site = site_on("postgresql")
    operation = create(site)
    killed = site.controller("one", "kill", "after", "MakeVgpu")
    assert killed.wait(LIMIT_S) == -signal.SIGKILL
    site.controller("two")
    ended = site.finished(operation)
    assert (ended.state, ended.attempt) == ("done", 2)
    one_of_each(site.machine())


@pytest.mark.fault("F96")
@pytest.mark.parametrize(
    ("moment", "refusals"),
    [("before", [["agent.stale_token:CreateVolume"]]), ("after", [[], ["agent.stale_token:WriteSeed"]])],
)
def test_a_controller_that_was_paused_in_a_step_can_do_nothing_when_it_wakes(
    site_on: Callable[[str], Site], moment: str, refusals: list[list[str]]
) -> None:
    """Woken after a quick step, it asks for the next one, or sees first that it is to end: both are right."""
    site = site_on("postgresql")
    operation = create(site)
    paused = site.controller("one", "stop", moment, "CreateVolume")
    site.reached("one")
    site.controller("two")
    ended = site.finished(operation)
    assert (ended.state, ended.attempt) == ("done", 2)
    before = site.machine().state()
    paused.send_signal(signal.SIGCONT)
    paused.terminate()
    assert paused.wait(LIMIT_S) == 0  # it has let its run end
    assert site.hosts.refused() in refusals
    assert site.plane.services.operations.get(operation) == ended
    assert site.machine().state() == before
    one_of_each(site.machine())


@pytest.mark.fault("F96")
@pytest.mark.parametrize("asks", [b"SELECT", b"FROM operations"])
def test_a_controller_that_was_paused_inside_a_read_can_do_nothing_when_it_wakes(
    site_on: Callable[[str], Site], postgres: Cluster, asks: bytes
) -> None:
    """Half of the answer has arrived: no limit of the database ends that transaction for it."""
    site = site_on("postgresql")
    with tempfile.TemporaryDirectory(prefix="way-", dir="/tmp") as directory:
        relay = relay_to(postgres, Path(directory))
        operation = create(site)
        stopped = threading.Event()

        def stop(_answer: bytes) -> None:
            if site.plane.services.operations.get(operation).state != "running":
                relay.on_answer = stop  # not yet: it starts, or looks for work
                return
            paused.send_signal(signal.SIGSTOP)
            stopped.set()

        relay.asks, relay.on_answer = asks, stop
        paused = site.controller(
            "one", url=postgres.url(site.url.rpartition("/")[2].partition("?")[0], Path(directory))
        )
        assert stopped.wait(LIMIT_S)
        site.controller("two")
        ended = site.finished(operation)
        before = site.machine().state()
        paused.send_signal(signal.SIGCONT)
        paused.terminate()
        assert paused.wait(LIMIT_S) == 0
        assert ended.state == "done"
        assert site.plane.services.operations.get(operation) == ended
        assert site.machine().state() == before
        one_of_each(site.machine())
        relay.close()


def relay_to(postgres: Cluster, directory: Path) -> Relay:
    """Listens in the directory as PostgreSQL would."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / SOCKET))
    listener.listen(64)

    def connected() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(postgres.sockets / SOCKET))
        return made

    return Relay(listener, connected)
