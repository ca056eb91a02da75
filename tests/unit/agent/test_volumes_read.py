# SPDX-License-Identifier: Apache-2.0
"""A data volume's file has a second name for each VM that reads it, and takes no writer then."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.core.actions.host_actions import ActionResult, DefineDomain
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    GrowDataVolume,
    LinkDataVolume,
)
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.vms.volume import file_of, reader_on_hosts
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.shared_pool import DECLARE, MIB, POOL, VM, VOLUME, two_hosts
from tests.unit.agent.test_data_volumes import FILE, ID, OTHER, SIZE, refused

READER = file_of(reader_on_hosts("data", OTHER, ID))
LINK = LinkDataVolume(volume=READER, of=FILE)


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    return furnished


def test_its_second_name_is_made_once_and_takes_nothing(bench: Bench) -> None:
    assert [bench.do(LINK).changed for _ in range(2)] == [True, False]
    data = bench.host.paths.data
    assert (data / READER).samefile(data / FILE)
    seen = {item.name: item for item in bench.storage.data.snapshots()}
    assert (seen[READER].owner, seen[READER].size_bytes) == (OTHER, 0)
    bench.do(DeleteDataVolume(volume=READER))
    assert not (data / READER).exists()
    assert (data / FILE).exists()


def test_a_volume_that_is_read_is_not_written_and_one_that_is_written_is_not_read(bench: Bench) -> None:
    bench.do(LINK)
    refused("volume.in_use", Conflict, lambda: bench.do(AttachVolume(vm=bench.vm, volume=FILE)))
    refused("volume.in_use", Conflict, lambda: bench.do(GrowDataVolume(volume=FILE, size_bytes=2 * SIZE)))
    bench.do(AttachVolume(vm=bench.vm, volume=READER))
    refused("volume.in_use", Conflict, lambda: bench.do(DeleteDataVolume(volume=READER)))
    bench.do(DetachVolume(vm=bench.vm, volume=READER))
    bench.do(DeleteDataVolume(volume=READER))
    bench.do(AttachVolume(vm=bench.vm, volume=FILE))
    refused("volume.in_use", Conflict, lambda: bench.do(LINK))


@pytest.mark.parametrize(
    "volume",
    [f"data.{OTHER}.raw", f"data.{OTHER}.{OTHER}.ro.raw", f"other.{OTHER}.{ID}.ro.raw", f"data.{OTHER}.x.ro.raw"],
)
def test_no_other_name_reads_it(bench: Bench, volume: str) -> None:
    def link() -> ActionResult:
        return bench.do(LinkDataVolume(volume=volume, of=FILE))

    refused("volume.file_invalid", InvalidInput, link)


def test_the_domain_that_has_it_may_not_write(bench: Bench) -> None:
    """By its name alone, whatever a server says."""
    bench.do(LINK)
    bench.do(AttachVolume(vm=bench.vm, volume=READER))
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), data=(READER,))))
    disks = ET.fromstring(bench.domains.definition(bench.vm)).findall("./devices/disk[@device='disk']")
    assert [disk.find("readonly") is not None for disk in disks] == [False, True]


def test_hosts_read_one_file_in_a_pool_by_names_of_their_own_and_none_has_its_lease(tmp_path: Path) -> None:
    hosts = two_hosts(tmp_path)
    hosts[0].storage.pools.declare(DECLARE)
    hosts[0].storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    (hosts[0].shared / "data" / VOLUME).write_bytes(b"x" * 64 * MIB)
    capacity = hosts[1].storage.shared.observe()[0][0].capacity_bytes
    volume_id, pools = VOLUME.split(".")[1], hosts[0].storage.pools
    readers = [file_of(reader_on_hosts("data", drawn, volume_id, POOL)) for drawn in (OTHER, ID)]
    for host, reader in zip(hosts, readers, strict=True):
        link = LinkDataVolume(volume=reader, of=VOLUME)
        assert [host.storage.data.link(link).changed for _ in range(2)] == [True, False]
        host.storage.data.attach(AttachVolume(vm=VM, volume=reader))
        assert host.storage.pools.is_held_here(reader)
    assert pools.lease(VOLUME) is None
    assert abs(hosts[1].storage.shared.observe()[0][0].capacity_bytes - capacity) < 64 * MIB, "it counts once"
    for host in hosts:
        attach, grow = AttachVolume(vm=VM, volume=VOLUME), GrowDataVolume(volume=VOLUME, size_bytes=128 * MIB)
        refused("volume.in_use", Conflict, partial(host.storage.data.attach, attach))
        refused("volume.in_use", Conflict, partial(host.storage.data.grow, grow, lambda *_: False))
    for host, reader in zip(hosts, readers, strict=True):
        host.storage.data.detach(DetachVolume(vm=VM, volume=reader))
        host.storage.data.delete(DeleteDataVolume(volume=reader))
        assert pools.lease(reader) is None
    assert hosts[0].storage.data.attach(AttachVolume(vm=VM, volume=VOLUME)).changed


def test_what_another_host_may_write_in_a_pool_is_not_read_until_that_host_is_given_up(tmp_path: Path) -> None:
    writer, reader = two_hosts(tmp_path)
    writer.storage.pools.declare(DECLARE)
    writer.storage.data.create(CreateDataVolume(volume=VOLUME, size_bytes=64 * MIB))
    writer.storage.data.attach(AttachVolume(vm=VM, volume=VOLUME))
    link = LinkDataVolume(volume=file_of(reader_on_hosts("data", OTHER, VOLUME.split(".")[1], POOL)), of=VOLUME)
    refused("pool.held_elsewhere", Conflict, lambda: reader.storage.data.link(link))
    given_up = replace(link, gone=writer.storage.pools.lease(VOLUME))
    assert reader.storage.data.link(given_up).changed
