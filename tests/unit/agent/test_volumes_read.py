# SPDX-License-Identifier: Apache-2.0
"""A data volume's file has a second name for each VM that reads it, and takes no writer then."""

from __future__ import annotations

from dataclasses import replace
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
