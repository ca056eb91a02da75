# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes with qemu-img's own files: nothing that a guest writes is in the file as it is, libvirt has the key
while QEMU is given it and no longer, and a host by itself has none. libvirt's test driver keeps no secrets: a small
store stands in for its secret driver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from orchestrator.agent import process
from orchestrator.agent.images import data_volumes, disk_images
from orchestrator.agent.images.disk_images import make_raw
from orchestrator.agent.libvirt import plugging
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, StopDomain
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CopyDataVolume,
    CreateDataVolume,
    GrowDataVolume,
    PlugDevices,
    ReplaceDataVolume,
)
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.hosts.volume_key import HEADER_BYTES, VolumeKey
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_data_volumes import ID, OTHER, SIZE, refused

FILE, PASSPHRASE = f"data.{ID}.luks.raw", "a passphrase that nobody guesses"
KEY = VolumeKey(volume=ID, passphrase=PASSPHRASE)
CREATE = CreateDataVolume(volume=FILE, size_bytes=SIZE, passphrase=PASSPHRASE)


class Secrets:
    """What libvirt holds, and what it held at each start of a domain. ``refuses``: it takes none."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.xml: list[str] = []
        self.at_start: list[dict[str, bytes]] = []

    def define(self, xml: str) -> Secret:
        self.xml.append(xml)
        uuid = ET.fromstring(xml).findtext("uuid") or ""
        self.held[uuid] = b""
        return Secret(self, uuid)

    def lookup(self, uuid: str) -> Secret:
        return Secret(self, uuid)


class Secret:
    def __init__(self, kept: Secrets, uuid: str) -> None:
        self.kept, self.uuid = kept, uuid

    def setValue(self, value: bytes) -> None:  # noqa: N802 - libvirt's name
        self.kept.held[self.uuid] = value

    def undefine(self) -> None:
        del self.kept.held[self.uuid]


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secrets]:
    """qemu-img takes two seconds to measure the processor at each file: here it is one of that length."""
    kept, create = Secrets(), libvirt.virDomain.create

    def created(domain: Any) -> int:
        kept.at_start.append(dict(kept.held))
        return int(create(domain))

    monkeypatch.setattr(libvirt.virConnect, "secretDefineXML", kept.define)
    monkeypatch.setattr(libvirt.virConnect, "secretLookupByUUIDString", kept.lookup)
    monkeypatch.setattr(libvirt.virDomain, "create", created)
    monkeypatch.setattr(data_volumes, "make_encrypted", lambda path, size, _: make_raw(path, size + HEADER_BYTES))
    yield kept
    assert kept.held == {}, "libvirt was left with a key"


def qemu_io(path: Path, passphrase: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """As QEMU opens it for a guest."""
    opened = {"driver": "luks", "key-secret": "key", "file": {"driver": "file", "filename": str(path)}}
    object_ = f"secret,id=key,data={passphrase}"
    orders = [part for command in commands for part in ("-c", command)]
    return subprocess.run(
        ["qemu-io", "--object", object_, *orders, f"json:{json.dumps(opened)}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def defined(bench: Bench) -> DefineDomain:
    bench.do(CREATE)
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    define = DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), data=(FILE,)))
    bench.do(define)
    return define


def test_what_a_guest_writes_is_in_no_file_as_it_is_and_only_its_key_opens_it(
    furnished: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, arguments = process.run, list[str]()

    def recorded(argv: list[str], **more: Any) -> Any:
        arguments.extend(argv)
        return run(argv, **more)

    monkeypatch.setattr(disk_images, "run", recorded)
    assert furnished.do(CREATE).changed
    assert not furnished.do(CREATE).changed
    path = furnished.host.paths.data / FILE
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (SIZE + HEADER_BYTES, 0o600)
    assert qemu_io(path, PASSPHRASE, "write -P 0x61 0 1M", "read -P 0x61 0 1M").returncode == 0
    content = path.read_bytes()
    assert content[:4] == b"LUKS"
    assert b"a" * 64 not in content
    assert PASSPHRASE.encode() not in content
    assert qemu_io(path, "another one", "read 0 512").returncode != 0
    assert "Invalid password" in qemu_io(path, "another one", "read 0 512").stderr
    assert furnished.do(GrowDataVolume(volume=FILE, size_bytes=2 * SIZE)).changed
    assert not furnished.do(GrowDataVolume(volume=FILE, size_bytes=2 * SIZE)).changed
    assert qemu_io(path, PASSPHRASE, "read -P 0x61 0 1M", f"write {2 * SIZE - 512} 512").returncode == 0
    assert qemu_io(path, PASSPHRASE, f"write {2 * SIZE} 512").returncode != 0
    assert "luks" in arguments
    assert not any(PASSPHRASE in part for part in arguments)


def test_libvirt_has_the_key_while_the_domain_is_started_and_not_after(furnished: Bench, secrets: Secrets) -> None:
    define = defined(furnished)
    assert f'<secret type="passphrase" uuid="{ID}"' in domain_xml(furnished.vm, define.domain, image=None)
    refused("volume.no_key", Conflict, lambda: furnished.do(StartDomain(vm=furnished.vm)))
    other = VolumeKey(volume=OTHER, passphrase=PASSPHRASE)
    refused("volume.no_key", Conflict, lambda: furnished.do(StartDomain(vm=furnished.vm, keys=(other,))))
    assert furnished.do(StartDomain(vm=furnished.vm, keys=(KEY,))).changed
    assert secrets.at_start == [{ID: PASSPHRASE.encode()}]
    assert all('ephemeral="yes" private="yes"' in xml for xml in secrets.xml)
    assert not furnished.do(StartDomain(vm=furnished.vm)).changed, "one that runs needs none"
    refused("agent.request_invalid", InvalidInput, lambda: furnished.do(_start(furnished, "../etc")))


def _start(bench: Bench, volume: str) -> StartDomain:
    return StartDomain(vm=bench.vm, keys=(KEY, VolumeKey(volume=volume, passphrase="x")))


def test_a_start_that_fails_leaves_libvirt_no_key(
    furnished: Bench, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    defined(furnished)

    def fails(_: Any) -> int:
        assert secrets.held == {ID: PASSPHRASE.encode()}
        raise libvirt.libvirtError("Invalid password, cannot unlock any keyslot")

    monkeypatch.setattr(libvirt.virDomain, "create", fails)
    refused("vm.start_failed", Fatal, lambda: furnished.do(StartDomain(vm=furnished.vm, keys=(KEY,))))


def test_one_that_runs_is_plugged_in_with_its_key(
    furnished: Bench, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm))
    furnished.do(bare)
    furnished.do(StartDomain(vm=furnished.vm))
    furnished.do(CREATE)
    furnished.do(AttachVolume(vm=furnished.vm, volume=FILE))
    plugged: list[tuple[str, dict[str, bytes]]] = []
    monkeypatch.setattr(plugging.Plugging, "plug", lambda _, __, xml: plugged.append((xml, dict(secrets.held))))
    plug = PlugDevices(vm=furnished.vm, domain=replace(bare.domain, data=(FILE,)), keys=(KEY,))
    refused("volume.no_key", Conflict, lambda: furnished.do(replace(plug, keys=())))
    furnished.handlers[PlugDevices](plug)
    assert [held for _, held in plugged] == [{ID: PASSPHRASE.encode()}]
    furnished.do(StopDomain(vm=furnished.vm, grace_seconds=0))
    assert furnished.do(replace(plug, keys=())).changed, "of one that is stopped it is the definition"


@pytest.mark.usefixtures("secrets")
def test_none_is_made_without_a_key_or_copied_bare(furnished: Bench) -> None:
    refused("volume.no_key", Conflict, lambda: furnished.do(replace(CREATE, passphrase="")))
    assert list(furnished.host.paths.data.iterdir()) == []
    furnished.do(CREATE)
    copy = CopyDataVolume(volume=f"before.{OTHER}.raw", of=FILE, size_bytes=SIZE)
    refused("volume.encrypted", Conflict, lambda: furnished.do(copy))
    back = ReplaceDataVolume(volume=FILE, of=copy.volume, copy=copy.volume, size_bytes=SIZE)
    refused("volume.encrypted", Conflict, lambda: furnished.do(back))
