# SPDX-License-Identifier: Apache-2.0
"""Huge pages, storage and readings of a host with the real Ansible, on a directory that has a host's files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.guest_with_packages import PackagedGuest
from tests.playbooks.prepared_host import Prepared, prepare
from tests.playbooks.test_guest_services import SYSTEMCTL

KEY = "AQBsecretsecretsecretsecretsecretsecret=="
UNITS = "etc/systemd/system"
STORAGE: dict[str, Any] = {
    "vgpuctl_host_storage_directories": [{"path": "/srv/vms", "mode": "0700"}],
    "vgpuctl_host_storage_mounts": [
        {"path": "/srv/nfs-a", "source": "nas:/export/a", "type": "nfs", "options": "vers=4.2,ro"},
        {"path": "/scratch", "source": "192.0.2.9@tcp:/scratch", "type": "lustre"},
    ],
    "vgpuctl_host_storage_ceph": {
        "fsid": "6b3c", "monitors": ["192.0.2.31", "192.0.2.32"], "user": "vgpuctl", "key": KEY,
    },
}  # fmt: skip
PAGES = [{"size": "2M", "node": 0, "pages": 512}, {"size": "1G", "node": 1, "pages": 8}]


def node_file(node: int, size: str) -> str:
    return f"sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages"


def judged(host: PackagedGuest) -> str:
    """What systemd has against the units that were written; nothing is the best."""
    units = [path for path in (host.root / UNITS).iterdir() if path.is_file()]
    assert units
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=120, check=False
    )
    return "" if done.returncode == 0 else done.stderr


def made_in(root: Path) -> PackagedGuest:
    made = PackagedGuest.made(root, ip='echo "[]"', systemctl=SYSTEMCTL)
    (root / UNITS).mkdir(parents=True)
    made.put("sys/module/nvidia/version", "580.95.05\n")
    for unit in ("nvidia-dcgm", "nvidia-dcgm-exporter"):
        made.put(f"units/{unit}.service")
    for unit in ("srv-nfs\\x2da", "scratch"):
        made.put(f"units/{unit}.mount")
    made.offers(nfs_common="1:2.8.3-1", lustre_client="2.16.1-1", ceph_common="18.2.7-1")
    made.offers(datacenter_gpu_manager_4_core="1:4.4.1-1", datacenter_gpu_manager_exporter="4.4.1-1")
    made.put(node_file(0, "2048kB"), "0\n")
    made.put(node_file(1, "1048576kB"), "0\n")
    return made


@pytest.fixture
def host(tmp_path: Path) -> PackagedGuest:
    return made_in(tmp_path)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackagedGuest, Prepared]:
    """A host whose storage was set up in a run that says all it can."""
    host = made_in(tmp_path_factory.mktemp("stored"))
    return host, prepare(host, STORAGE, flags=("-vvv", "--diff"))


def test_storage_is_mounted_with_its_clients_and_a_second_run_changes_nothing(
    stored: tuple[PackagedGuest, Prepared],
) -> None:
    host, first = stored
    assert not first.failed, first.said
    assert host.installed == {"nfs-common", "lustre-client", "ceph-common"}
    unit = (host.root / UNITS / "srv-nfs\\x2da.mount").read_text()
    assert "What=nas:/export/a\nWhere=/srv/nfs-a\nType=nfs\nOptions=_netdev,vers=4.2,ro\n" in unit
    assert "Type=lustre\nOptions=_netdev\n" in (host.root / UNITS / "scratch.mount").read_text()
    assert judged(host) == ""
    assert (host.root / "srv/vms").stat().st_mode & 0o777 == 0o700
    again = prepare(host, STORAGE)
    assert (again.failed, again.changed) == (False, 0), again.said


def test_a_key_of_ceph_is_in_a_file_for_root_and_nowhere_else(stored: tuple[PackagedGuest, Prepared]) -> None:
    host, ran = stored
    keyring = host.root / "etc/ceph/ceph.client.vgpuctl.keyring"
    assert keyring.read_text() == f"[client.vgpuctl]\nkey = {KEY}\n"
    assert keyring.stat().st_mode & 0o777 == 0o600
    assert "mon_host = 192.0.2.31,192.0.2.32" in (host.root / "etc/ceph/ceph.conf").read_text()
    assert not ran.failed
    assert KEY not in ran.said + "\n".join(host.asked)


def test_a_look_in_check_mode_changes_nothing_on_the_host(host: PackagedGuest) -> None:
    tried = prepare(
        host,
        {**STORAGE, "vgpuctl_host_hugepages_wanted": PAGES, "vgpuctl_host_exporter_wanted": True},
        flags=("--check",),
    )
    assert not tried.failed, tried.said
    assert tried.changed > 0
    assert not host.installed
    assert not any((host.root / UNITS).iterdir())
    assert (host.root / node_file(0, "2048kB")).read_text() == "0\n"


def test_huge_pages_are_set_aside_on_their_nodes_now_and_at_each_boot(host: PackagedGuest) -> None:
    first = prepare(host, {"vgpuctl_host_hugepages_wanted": PAGES})
    assert not first.failed, first.said
    assert (host.root / node_file(0, "2048kB")).read_text() == "512\n"
    unit = (host.root / UNITS / "vgpuctl-hugepages.service").read_text()
    assert f"ExecStart=/bin/sh -c 'echo 8 > /{node_file(1, '1048576kB')}'\n" in unit
    assert judged(host) == ""
    assert "restart dev-hugepages1G.mount\n" in (host.root / "told").read_text()
    again = prepare(host, {"vgpuctl_host_hugepages_wanted": PAGES})
    assert (again.failed, again.changed) == (False, 0), again.said


def test_pages_that_the_kernel_did_not_give_are_said(host: PackagedGuest) -> None:
    (host.root / node_file(1, "1048576kB")).unlink()
    (host.root / node_file(1, "1048576kB")).symlink_to("/dev/null")
    short = prepare(host, {"vgpuctl_host_hugepages_wanted": PAGES})
    assert short.failed
    assert "[host.hugepages_short] the kernel has 0 of 8 pages of 1G on node 1" in short.said
    assert (host.root / UNITS / "vgpuctl-hugepages.service").exists(), "the next boot gives them"


def test_dcgm_is_of_the_release_that_was_said_and_its_exporter_answers_there(host: PackagedGuest) -> None:
    wanted = {
        "vgpuctl_host_exporter_wanted": True, "vgpuctl_host_exporter_dcgm_version": "4.4.1",
        "vgpuctl_host_exporter_address": "192.0.2.11",
    }  # fmt: skip
    assert not prepare(host, wanted).failed
    assert host.installed == {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"}
    own = host.root / UNITS / "nvidia-dcgm-exporter.service.d/vgpuctl.conf"
    assert own.read_text() == "[Service]\nEnvironment=DCGM_EXPORTER_LISTEN=192.0.2.11:9400\n"
    again = prepare(host, wanted)
    assert (again.failed, again.changed) == (False, 0), again.said
    other = prepare(host, {**wanted, "vgpuctl_host_exporter_dcgm_version": "4.5"})
    assert "[host.no_package] no repository of the host has datacenter-gpu-manager-4-core 4.5" in other.said


@pytest.mark.parametrize(("lacks", "variables", "said"), [
    ("sys/module/nvidia/version", {"vgpuctl_host_exporter_wanted": True}, "[host.no_driver]"),
    ("units/nvidia-dcgm.service", {"vgpuctl_host_exporter_wanted": True}, "[host.service_failed] the host has no"),
    ("offered/nfs-common", STORAGE, "[host.no_package] no repository of the host has nfs-common"),
    (node_file(0, "2048kB"), {"vgpuctl_host_hugepages_wanted": PAGES}, "[host.no_such_hugepages] 512 pages of 2M"),
    ("", {"vgpuctl_host_hugepages_wanted": [{**PAGES[0], "size": "4M"}]}, "value of size must be one of"),
    ("", {"vgpuctl_host_storage_mounts": [{"path": "/a", "source": "b", "type": "ntfs"}]}, "must be one of"),
    ("", {"vgpuctl_host_storage_ceph": {"fsid": "x"}}, "missing required arguments"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    host: PackagedGuest, lacks: str, variables: dict[str, Any], said: str
) -> None:
    if lacks:
        (host.root / lacks).unlink()
    refused = prepare(host, variables)
    assert refused.failed
    assert said in refused.said, refused.said
