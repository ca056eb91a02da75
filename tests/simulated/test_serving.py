# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.client.autostart import server_info
from orchestrator.client.client import Client
from orchestrator.core.actions.host_actions import DisableVirtualFunctions
from orchestrator.core.actions.pools import DeclarePool
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.wire import snapshot_digest
from orchestrator.server.bootstrap import build
from orchestrator.server.settings import load_settings
from orchestrator.server.simulated import build_without_hosts, simulated_hosts
from orchestrator.sim.fleet import new_machine
from orchestrator.sim.hardware import gpu_kind
from orchestrator.sim.hosts_process import machines_of
from orchestrator.sim.in_memory import new_host
from orchestrator.sim.machine_files import MachineFiles
from orchestrator.sim.machine_link import OBSERVE
from orchestrator.sim.observing import snapshot_of
from orchestrator.sim.pool_actions import declare
from orchestrator.sim.vgpu_actions import disable
from tests.fakes.several import Server, until
from tests.fakes.simulated import wish

FLEET = """\
groups:
  - {name: t4, count: 2, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 96, memory_gib: 768}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return file


@contextmanager
def serving(state: Path, hosts: Path) -> Iterator[Client]:
    """A client of a server that simulates the hosts of a file by itself, or has those of a socket."""
    state.mkdir(mode=0o700, exist_ok=True)
    server = Server(state, hosts)
    server.start()
    try:
        server.ready()
        with server.client() as client:
            yield client
    finally:
        server.signal(signal.SIGTERM)
        assert server.process is not None
        server.process.wait(60)


def shown(client: Client) -> dict[str, tuple[str, str]]:
    return {vm["name"]: (vm["state"], vm["device"]["kind"]) for vm in client.vms()}


def test_a_fleet_without_machines_serves_vms_of_both_kinds_and_outlives_the_server(tmp_path: Path, fleet: Path) -> None:
    state = tmp_path / "state"
    with serving(state, fleet) as client:
        hosts = {host["name"]: host["state"] for host in client.hosts()}
        assert hosts == {"l40s-0": "ready", "t4-0": "ready", "t4-1": "ready"}
        for one in (("old", "GRID T4-4Q"), ("new", "NVIDIA L40S-12Q")):
            client.wait(client.create_vm(wish(*one)))
        assert shown(client) == {"old": ("running", "mdev"), "new": ("running", "vendor_vfio")}
        assert client.findings(None) == []
        assert "old" in {cell["vm"] for row in client.gpu_map()["gpus"] for cell in row["cells"]}
        assert client.capacity({"profile": "GRID T4-4Q"})["rows"][0]["fits_now"] == 15
        assert client.explain({"profile": "GRID T4-16Q"})["fits"]
    with serving(state, fleet) as client:
        client.wait(client.stop_vm("new", "default"))
        assert shown(client) == {"old": ("running", "mdev"), "new": ("stopped", "vendor_vfio")}
        client.wait(client.start_vm("new", "default"))
        for name in ("old", "new"):
            client.wait(client.delete_vm(name, "default"))
        assert (client.vms(), client.observe_findings(None)) == ([], [])
    assert all(json.loads(file.read_text())["machine"]["volumes"] == {} for file in (state / "machines").iterdir())


def test_a_state_directory_serves_real_hosts_or_others_never_both(tmp_path: Path, fleet: Path) -> None:
    real, paper = load_settings(state=tmp_path / "real"), load_settings(state=tmp_path / "paper")
    app = build(real)
    with app.store.begin() as tx:
        tx.hosts.add(new_host("gpu-01", "gpu-01.test", None, (), 0))
    app.close()
    with simulated_hosts(fleet, paper) as socket:
        build_without_hosts(paper, socket).close()
        with pytest.raises(Conflict, match="serves real hosts"):
            build_without_hosts(real, socket)
    with pytest.raises(Conflict, match="are simulated"):
        build(paper)


def test_a_directory_in_which_a_server_had_begun_without_anything_serves_simulated_hosts_too(
    tmp_path: Path, fleet: Path
) -> None:
    settings = load_settings(state=tmp_path / "state")
    app = build(settings)
    site = app.store.site
    app.close()
    with simulated_hosts(fleet, settings) as socket:
        app = build_without_hosts(settings, socket)
        with app.store.read() as tx:
            assert len(tx.hosts.addresses()) == 3
        assert app.store.site != site
        app.close()
    with pytest.raises(Conflict, match="are simulated"):
        build(settings)


def test_each_controller_of_a_database_server_would_simulate_other_hosts(tmp_path: Path, fleet: Path) -> None:
    settings = load_settings(state=tmp_path, database_url="postgresql+psycopg://nobody@localhost/none")
    with pytest.raises(InvalidInput, match="each would simulate other hosts"), simulated_hosts(fleet, settings):
        pass


def test_hosts_in_a_process_of_their_own_outlive_the_server(tmp_path: Path, fleet: Path) -> None:
    state = tmp_path / "state"
    with simulated_hosts(fleet, load_settings(state=tmp_path)) as socket:
        with serving(state, socket) as client:
            client.wait(client.create_vm(wish("old", "GRID T4-4Q")))
        with serving(state, socket) as client:
            assert client.observe_findings(None) == []
            assert shown(client) == {"old": ("running", "mdev")}
            client.wait(client.delete_vm("old", "default"))


def test_a_host_shows_what_another_did_to_a_pool_of_both(tmp_path: Path, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("128}", "128, pools: [fast]}"))
    machines = machines_of(fleet, tmp_path / "hosts")
    one, two, _ = machines.fleet.machines
    known = snapshot_digest(machines.call(two, OBSERVE, snapshot_of))
    unchanged = machines.look(two, lambda machine: machine, known)
    assert machines.look(two, lambda machine: machine, known) == unchanged
    machines.call(one, "declare", lambda machine: declare(machine, DeclarePool(name="fast", pool_id="1" * 32)))
    assert machines.look(two, lambda machine: machine, known) != unchanged


def test_the_process_that_simulates_the_hosts_ends_with_a_killed_server(tmp_path: Path, fleet: Path) -> None:
    state = tmp_path / "state"
    with serving(state, fleet) as client:
        os.kill(int(server_info(client.connection)["pid"]), signal.SIGKILL)
        until(lambda: not (state / "hosts.sock").exists())


def test_a_host_that_has_other_gpus_than_before_is_refused(tmp_path: Path, fleet: Path) -> None:
    kept = MachineFiles(tmp_path / "machines")
    catalogue = shipped()
    kept.keep("h.test", new_machine(1, [gpu_kind(catalogue, "L40S")]))
    with pytest.raises(Fatal, match="other GPUs"):
        kept.restore("h.test", new_machine(1, [gpu_kind(catalogue, "Tesla T4")]))


@pytest.mark.parametrize("model", ["Tesla T4", "L40S"])
def test_a_gpu_without_virtual_functions_has_none_to_give_back(model: str) -> None:
    machine = new_machine(1, [gpu_kind(shipped(), model)])
    gpu = machine.kernel.gpus[0]
    machine.ledger.managed = frozenset({gpu.address})
    machine.kernel.switch_functions(gpu, on=False)
    assert not disable(machine, DisableVirtualFunctions(gpu=gpu.address)).changed


def test_a_wrong_fleet_file_ends_the_command_with_one_line_and_leaves_nothing(tmp_path: Path, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("Tesla T4", "Tesla T5"))
    state = tmp_path / "state"
    outcome = subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", "serve", "--simulate", str(fleet)],
        env={**os.environ, "VGPUCTL_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert outcome.returncode == 2
    assert "fleet.yaml:2: gpu_model: no GPU model is called 'Tesla T5'" in outcome.stderr.splitlines()[0]
    assert not (state / "vgpuctl.sqlite").exists()


def test_a_server_that_is_told_to_end_while_its_hosts_hang_ends_and_the_next_one_goes_on(
    tmp_path: Path, fleet: Path
) -> None:
    server = Server(tmp_path / "state", fleet)
    server.directory.mkdir(mode=0o700)
    with simulated_hosts(fleet, load_settings(state=tmp_path)) as socket:
        server.hosts = socket
        server.start()
        server.ready()
        (hosts,) = [
            int(one.parent.name)
            for one in Path("/proc").glob("[0-9]*/cmdline")
            if str(socket).encode() in one.read_bytes().split(b"\0") and b"hosts_process" in one.read_bytes()
        ]
        os.kill(hosts, signal.SIGSTOP)
        try:
            operation = server.client().create_vm(wish("slow", "GRID T4-4Q"))["operation"]
            assert operation is not None
            until(lambda: server.client().operation(operation)["state"] == "running")
            server.signal(signal.SIGTERM)
            assert server.process is not None
            assert server.process.wait(60) == 0
        finally:
            server.kill()
            os.kill(hosts, signal.SIGCONT)
        server.start()
        server.ready()
        until(lambda: server.client().operation(operation)["state"] == "done")
        server.stop()


def test_a_server_starts_again_after_one_of_its_hosts_was_removed(tmp_path: Path, fleet: Path) -> None:
    state = tmp_path / "state"
    with serving(state, fleet) as client:
        client.wait(client.remove_host("t4-1"))
    with serving(state, fleet) as client:
        assert {host["state"] for host in client.hosts()} == {"ready"}
        client.wait(client.create_vm(wish("train", "GRID T4-4Q")))
