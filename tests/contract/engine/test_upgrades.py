# SPDX-License-Identifier: Apache-2.0
"""A server is replaced by a newer one while VMs run, an operation is in mid step and a console is open; and the way
back is refused. The newer program is this one with a step of the schema more, as the next release will have it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from orchestrator.client.autostart import connect_running, server_info
from tests.chaos.hosts_relay import HostsRelay
from tests.fakes.several import LIMIT_S, Server, join_one, simulated_fleet, until, wish
from tests.fakes.typed import COMMAND
from tests.fakes.versions import LATER_SCHEMA, copied_tree, tree_with_a_later_schema
from tests.postgres.cluster import Cluster

ENDED = {"done", "undone", "stuck"}


def newer(directory: Path, *, schema: bool) -> Path:
    """A tree of the next version; ``schema``: it has another one."""
    return tree_with_a_later_schema(directory / "newer") if schema else copied_tree(directory / "rebuilt")


class Watched:
    """What is done on the hosts, and one start that is not answered before it is said so."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        """By VM and action."""
        self.asked_by: list[str] = []
        self.hold = False
        self._held, self._go = threading.Event(), threading.Event()

    def by(self, server: str, action: dict[str, Any]) -> None:
        self.done[str(action.get("vm")), action["action"]] += 1
        if self.hold and action["action"] == "StartDomain":
            self.hold = False
            self.asked_by.append(server)
            self._held.set()
            assert self._go.wait(LIMIT_S)

    def in_mid_step(self) -> str:
        """The server whose step it is, once there is one."""
        assert self._held.wait(LIMIT_S)
        return self.asked_by[0]

    def go_on(self) -> None:
        self._go.set()


class Place:
    """Hosts in a process, and a way to them for each server."""

    def __init__(self, directory: Path, hosts: Path) -> None:
        self.directory, self.watched, self._hosts = directory, Watched(), hosts

    def server(self, name: str, url: str, held: ExitStack) -> Server:
        relay = held.enter_context(closing(HostsRelay(self.directory / f"{name}.sock", self._hosts)))
        relay.on_performed = lambda action: self.watched.by(name, action)
        server = Server(self.directory / name, self.directory / f"{name}.sock")
        server.configure(url)
        held.callback(server.kill)
        return server

    def processes(self) -> dict[str, float]:
        """When each VM's process was started, by id."""
        kept = json.loads((self.directory / "machines/l40s-0.test").read_text())
        domains = kept["machine"]["domains"]
        return {uuid: domain["started_at"] for uuid, domain in domains.items() if domain["running"]}


@contextmanager
def place_in(directory: Path) -> Iterator[Place]:
    with simulated_fleet(directory, 1) as hosts:
        yield Place(directory, hosts)


def running_vm(server: Server, name: str) -> str:
    """Its id."""
    client = server.client()
    client.wait(client.create_vm(wish(name)), timeout_s=LIMIT_S)
    return str(client.vm(name, "default")["id"])


@contextmanager
def console_of(server: Server, name: str) -> Iterator[subprocess.Popen[str]]:
    """Open, and somebody is at its standard input."""
    with subprocess.Popen(
        [str(COMMAND), "console", name], env=server.variables(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "console of" in process.stdout.readline()
        yield process


def told(console: subprocess.Popen[str]) -> str:
    """What somebody at a console reads when their server is replaced."""
    assert console.stderr is not None
    said = console.stderr.read()
    assert console.wait(LIMIT_S) == 9, said
    return said


def replaced_in_mid_step(place: Place, servers: dict[str, Server], tree: Path) -> tuple[str, str]:
    """The VM that was begun, and its operation."""
    place.watched.hold = True
    client = next(iter(servers.values())).client()
    operation = str(client.create_vm(wish("begun"))["operation"])
    vm = str(client.vm("begun", "default")["id"])
    first = servers[place.watched.in_mid_step()]
    with console_of(first, "kept") as console:
        stopping = threading.Thread(target=first.stop)
        stopping.start()
        assert "the server is being stopped or replaced" in told(console)
    place.watched.go_on()
    stopping.join(LIMIT_S)
    assert first.process is not None
    assert first.process.returncode == 0
    first.tree = tree
    first.start()
    first.ready()
    return vm, operation


def ended_once(place: Place, server: Server, vm: str, operation: str) -> None:
    client = server.client()
    until(lambda: client.operation(operation)["state"] in ENDED, "the end of the operation")
    assert client.operation(operation)["state"] == "done"
    once = {action: count for (of, action), count in place.watched.done.items() if of == vm}
    assert (once["DefineDomain"], once["StartDomain"]) == (1, 1)
    assert vm in place.processes()


def build_of(server: Server) -> str:
    connection = connect_running(server.directory)
    assert connection is not None
    return str(server_info(connection)["version"])


def refused(server: Server, hosts: Path) -> None:
    """An older program on a database that a newer one has brought up to date; it says what to do."""
    code, _, said = server.run("--simulate", str(hosts), module="orchestrator.server.serve")
    assert (code, "[store.newer_schema]" in said, f"schema {LATER_SCHEMA}" in said, "restore a backup" in said) == (
        5, True, True, True,
    )  # fmt: skip


def test_a_server_is_replaced_by_one_with_another_schema_and_the_way_back_is_refused(tmp_path: Path) -> None:
    with place_in(tmp_path) as place, ExitStack() as held:
        server = place.server("one", f"sqlite:///{tmp_path / 'one.sqlite'}", held)
        server.start()
        server.ready()
        older, kept = build_of(server), running_vm(server, "kept")
        process = place.processes()[kept]
        vm, operation = replaced_in_mid_step(place, {"one": server}, newer(tmp_path, schema=True))
        ended_once(place, server, vm, operation)
        assert place.processes()[kept] == process
        assert build_of(server) != older
        server.stop()
        server.tree = None
        refused(server, server.hosts)
        assert place.processes()[kept] == process


def test_two_controllers_are_replaced_one_at_a_time(tmp_path: Path, postgres: Cluster) -> None:
    with place_in(tmp_path) as place, ExitStack() as held:
        url = postgres.database()
        servers = {name: place.server(name, url, held) for name in ("one", "two")}
        for server in servers.values():
            join_one(server, servers["one"])
        servers["two"].ready()
        older, kept = build_of(servers["one"]), running_vm(servers["one"], "kept")
        process = place.processes()[kept]
        tree = newer(tmp_path, schema=False)
        vm, operation = replaced_in_mid_step(place, servers, tree)
        ended_once(place, servers["one"], vm, operation)
        for server in servers.values():
            if server.tree is None:
                server.stop()
                server.tree = tree
                server.start()
                server.ready()
        assert {build_of(server) for server in servers.values()}.isdisjoint({older})
        assert place.processes()[kept] == process
        for server in servers.values():
            server.stop()
        servers["one"].tree = newer(tmp_path, schema=True)
        servers["one"].start()
        servers["one"].ready()
        refused(servers["two"], servers["two"].hosts)
        assert {host["state"] for host in servers["one"].client().hosts()} == {"ready"}
        assert place.processes()[kept] == process


def test_a_controller_beside_a_newer_one_ends_by_name_and_vms_run_on(tmp_path: Path, postgres: Cluster) -> None:
    with place_in(tmp_path) as place, ExitStack() as held:
        url = postgres.database()
        servers = {name: place.server(name, url, held) for name in ("one", "two")}
        for server in servers.values():
            join_one(server, servers["one"])
        older, newest = servers["two"], servers["one"]
        older.ready()
        kept = running_vm(newest, "kept")
        process = place.processes()[kept]
        newest.stop()
        newest.tree = newer(tmp_path, schema=True)
        newest.start()
        assert older.process is not None
        assert older.process.wait(LIMIT_S) == 5, older.log()[-2000:]
        assert "[store.schema_changed]" in older.log()
        newest.ready()
        until(lambda: "ready" in {host["state"] for host in newest.client().hosts()}, "the newer one's look")
        assert place.processes()[kept] == process
