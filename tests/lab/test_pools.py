# SPDX-License-Identifier: Apache-2.0
"""A pool over NFS between two lab hosts: its VMs move with their memory alone, and start elsewhere from it once their
host is dead, which gives them up when it is back."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from lab.places import places
from tests.lab.conftest import lab
from tests.lab.enrolled import SMALLEST
from tests.lab.host_facts import facts
from tests.lab.played import play
from tests.lab.two_hosts import Site, two_hosts

pytestmark = pytest.mark.lab

_VM: Final = "mdev"
_POOL: Final = "/var/lib/vgpuctl-agent/pools/fast"
_EXPORT: Final = """
mkdir -p /srv/fast; echo '/srv/fast 10.77.0.0/24(rw,sync,no_root_squash,no_subtree_check)' >/etc/exports
systemctl -q enable --now nfs-server"""
_KEPT: Final = f"""
qemu-io -f qcow2 -c 'write -P 94 8M 64k' {_POOL}/volumes/*.qcow2
qemu-io -f raw -c 'write -P 49 4M 64k' {_POOL}/data/*.raw"""
_READ: Final = f"""
qemu-io -U -r -f qcow2 -c 'read -P 94 8M 64k' {_POOL}/volumes/*.qcow2
qemu-io -U -r -f raw -c 'read -P 49 4M 64k' {_POOL}/data/*.raw"""
_BACK_WITHIN_S: Final = 400.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The target serves the directory that both mount, as their operator's playbook has it. A VM with its disk and a
    volume there runs on the source."""
    state = tmp_path_factory.mktemp("site")
    with two_hosts(state) as one:
        server = one.hosts["target"]
        server.run(_EXPORT)
        address = server.run("ip -4 -o address | grep -o '10[.]77[.][0-9.]*' | head -1").strip()
        mount: dict[str, object] = {
            "path": _POOL, "source": f"{address}:/srv/fast", "type": "nfs", "options": "vers=4.2,hard",
        }  # fmt: skip
        with ThreadPoolExecutor(2) as pool:
            prepared = [pool.submit(_mounted, one, name, state / name, mount) for name in one.hosts]
        assert [each.result() for each in prepared] == ["nfs4", "nfs4"]
        product = one.product
        product.run("doctor")
        product.ok("pool", "create", "fast")
        product.run("doctor")
        product.ok("volume", "create", "data", "--size", "16MiB", "--pool", "fast")
        words = ("--profile", _VM, "--host", "source", "--image", "counting", "--pool", "fast", "--volume", "data")
        product.ok("create-vm", _VM, *words, *SMALLEST, "--no-start")
        one.hosts["source"].run(_KEPT)
        product.ok("start-vm", _VM)
        yield one
        product.ok("delete-vm", _VM)
        product.ok("volume", "delete", "data", "--yes")
        assert server.run("cd /srv/fast && find volumes data leases -type f") == ""
        product.ok("pool", "delete", "fast", "--yes")
        for host in one.hosts.values():
            host.run("systemctl disable --now 'var-lib-vgpuctl\\x2dagent-pools-fast.mount'")


def _mounted(site: Site, name: str, directory: Path, mount: dict[str, object]) -> str:
    """As which kind of file system."""
    directory.mkdir()
    wanted = {"vgpuctl_host_storage_mounts": [mount]}
    said = play("prepare-host.yml", "vgpuctl_hosts", site.hosts[name], directory, wanted)[1]
    assert "failed=0" in said, said
    return site.hosts[name].run(f"findmnt -n -o FSTYPE {_POOL}").strip()


def test_a_vm_of_a_pool_moves_while_it_runs_and_its_disks_stay_where_they_are(site: Site) -> None:
    vm, counted = str(site.product.json("show-vm", _VM)["id"]), site.count(_VM)
    files = site.hosts["target"].run("cd /srv/fast && ls -i volumes data")
    for host, other in (("target", "source"), ("source", "target")):
        moved = site.move(_VM, host)
        assert moved.code == 0, moved.err
        assert site.where(vm) == [f"{host} running"]
        counted, before = site.count(_VM), counted
        assert counted > before
        assert site.hosts["target"].run("cd /srv/fast && ls -i volumes data") == files
        assert site.hosts[other].run("cd /var/lib/vgpuctl-agent && find volumes data -type f") == ""
        refused = site.hosts[other].run(f"qemu-io -f qcow2 -c 'write 0 64k' {_POOL}/volumes/*.qcow2 2>&1 || true")
        assert 'Failed to get "write" lock' in refused


@pytest.mark.fault("F104")
def test_vms_of_a_dead_host_start_elsewhere_with_their_data_and_it_gives_them_up_when_it_is_back(site: Site) -> None:
    product, target = site.product, site.hosts["target"]
    vm = str(product.json("show-vm", _VM)["id"])
    assert site.where(vm) == ["source running"]
    os.kill(int(json.loads((places().state / "hosts/source/host.json").read_text())["pid"]), signal.SIGKILL)
    _until(lambda: product.json("host", "show", "source")["state"], "unreachable")
    product.ok("host", "evacuate", "source", "--fenced-by-hand", "--confirm", "source")
    shown = product.json("show-vm", _VM)
    assert (shown["host"], shown["state"]) == ("target", "running")
    site.count(_VM)
    assert "Pattern verification failed" not in target.run(_READ)

    lab("start", "source")
    source = site.hosts["source"]
    _until(lambda: product.json("host", "show", "source")["state"], "ready")
    _until(lambda: source.run("virsh list --all --uuid").strip(), "")
    assert facts(source.run)["mdevs"] == []
    product.ok("host", "uncordon", "source")
    _until(lambda: product.json("maintenance", "show")["state"], "done")
    assert product.ok("doctor").out == "nothing differs\n"
    assert target.run(f"virsh domstate {vm}").strip() == "running"
    assert "Pattern verification failed" not in target.run(_READ)


def _until(asked: Callable[[], str], wanted: str) -> None:
    end = time.monotonic() + _BACK_WITHIN_S
    while (said := asked()) != wanted:
        assert time.monotonic() < end, said
        time.sleep(2)
