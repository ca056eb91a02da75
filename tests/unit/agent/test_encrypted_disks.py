# SPDX-License-Identifier: Apache-2.0
"""VMs' own encrypted disks with qemu-img's own files: what a guest writes is in no file as it is, what lies beneath is
shown, and the disk grows with its key alone."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent import process
from orchestrator.agent.images import disk_images
from orchestrator.core.actions.disk_snapshots import TakeSnapshot
from orchestrator.core.actions.host_actions import CreateVolume, DefineDomain, StartDomain
from orchestrator.core.actions.volumes import GrowDisk
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.volume_key import VolumeKey
from orchestrator.core.units import MIB
from orchestrator.core.vms.disk_snapshot import snapshot_file
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_data_volumes import refused
from tests.unit.agent.test_encrypted_volumes import Secrets, secrets

PASSPHRASE = "a passphrase that nobody guesses"
SIZE = 8 * MIB
IMAGE = b"i" * MIB
SHA256 = hashlib.sha256(IMAGE).hexdigest()

assert secrets, "a fixture"


def creating(bench: Bench) -> CreateVolume:
    bench.storage.receive_image(SHA256, "raw", len(IMAGE), io.BytesIO(IMAGE).read)
    keys = (VolumeKey(volume=bench.vm, passphrase=PASSPHRASE),)
    file = f"{bench.vm}.luks.qcow2"
    return CreateVolume(vm=bench.vm, volume=file, base_sha256=SHA256, base_format="raw", size_bytes=SIZE, keys=keys)


def qemu_io(path: Path, passphrase: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """As QEMU opens it for a guest."""
    opened = {
        "driver": "qcow2", "encrypt": {"format": "luks", "key-secret": "key"},
        "file": {"driver": "file", "filename": str(path)},
    }  # fmt: skip
    orders = [part for command in commands for part in ("-c", command)]
    return subprocess.run(
        ["qemu-io", "--object", f"secret,id=key,data={passphrase}", *orders, f"json:{json.dumps(opened)}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_a_guest_writes_is_in_no_file_as_it_is_and_only_its_key_opens_it(
    furnished: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, arguments = process.run, list[str]()

    def recorded(argv: list[str], **more: Any) -> Any:
        arguments.extend(argv)
        return run(argv, **more)

    monkeypatch.setattr(disk_images, "run", recorded)
    create = creating(furnished)
    assert furnished.do(create).changed
    assert not furnished.do(create).changed
    path = furnished.host.paths.volumes / create.volume
    assert path.stat().st_mode & 0o777 == 0o600
    its = qemu_io(path, PASSPHRASE, "read -P 0x69 0 64k", "write -P 0x61 64k 64k", "read -P 0x61 64k 64k")
    assert (its.returncode, "failed" in its.stdout) == (0, False), its
    assert b"a" * 64 not in path.read_bytes()
    assert "Invalid password" in qemu_io(path, "another one", "read 0 512").stderr
    grow = GrowDisk(vm=furnished.vm, volume=create.volume, size_bytes=2 * SIZE, keys=create.keys)
    refused("volume.no_key", Conflict, lambda: furnished.do(replace(grow, keys=())))
    assert furnished.do(grow).changed
    assert not furnished.do(grow).changed
    its = qemu_io(path, PASSPHRASE, "read -P 0x61 64k 64k", f"write {2 * SIZE - 512} 512")
    assert (its.returncode, "failed" in its.stdout) == (0, False), its
    assert "encrypt.format=luks" in " ".join(arguments)
    assert not any(PASSPHRASE in part for part in arguments)


def test_none_is_made_without_a_key(furnished: Bench) -> None:
    create = replace(creating(furnished), keys=())
    refused("volume.no_key", Conflict, lambda: furnished.do(create))
    assert create.volume not in {file.name for file in furnished.host.paths.volumes.iterdir()}


def test_libvirt_has_the_key_while_the_domain_is_started_and_not_after(furnished: Bench, secrets: Secrets) -> None:
    create = creating(furnished)
    furnished.do(create)
    domain = replace(domain_of(furnished.vm), volume=create.volume)
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain))
    defined = furnished.libvirt.lookupByUUIDString(furnished.vm).XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    assert f'<secret type="passphrase" uuid="{furnished.vm}"' in domain_xml(furnished.vm, domain, image=None)
    assert PASSPHRASE not in defined
    refused("volume.no_key", Conflict, lambda: furnished.do(StartDomain(vm=furnished.vm)))
    assert furnished.do(StartDomain(vm=furnished.vm, keys=create.keys)).changed
    assert secrets.at_start == [{furnished.vm: PASSPHRASE.encode()}]


def test_no_server_has_a_snapshot_of_an_encrypted_disk_made_as_its_guest_sees_it(furnished: Bench) -> None:
    furnished.do(made := creating(furnished))
    taken = TakeSnapshot(
        vm=furnished.vm, volume=snapshot_file(furnished.vm, "2" * 36), disk=made.volume, size_bytes=SIZE
    )
    refused("snapshot.encrypted", Conflict, lambda: furnished.do(taken))
