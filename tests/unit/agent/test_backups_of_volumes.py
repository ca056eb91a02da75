# SPDX-License-Identifier: Apache-2.0
"""Data volumes in backups, with the real restic: each is there under its name beside the disk, and comes back."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.backups import FetchVolume, ListBackups, RemoveBackup, StoreBackup, VerifyBackup
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
    ReplaceDataVolume,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound
from tests.unit.agent.bench import Bench
from tests.unit.agent.test_backups import SIZE as DISK_SIZE
from tests.unit.agent.test_backups import Site, furnished_site
from tests.unit.agent.test_data_volumes import FILE, OTHER, SIZE

PART = FILE.removesuffix(".raw")
BACK = f"copy-1.{OTHER}.raw"


@pytest.fixture
def site(furnished: Bench) -> Site:
    made = furnished_site(furnished)
    furnished.do(CreateDataVolume(volume=FILE, size_bytes=SIZE))
    furnished.do(AttachVolume(vm=furnished.vm, volume=FILE))
    path_of(made, FILE).write_bytes(os.urandom(SIZE // 2) + bytes(SIZE // 2))
    return made


def path_of(site: Site, file: str) -> Path:
    return site.bench.storage.paths.data / file


def names(site: Site) -> set[str]:
    return {path.name for path in site.bench.storage.paths.data.iterdir()}


def members(site: Site, number: int = 1) -> dict[str, Any]:
    return {**site.members(number), "size_bytes": SIZE, "part": PART}


def store_of(site: Site) -> StoreBackup:
    return replace(site.take(1), part=PART, size_bytes=SIZE, volume=FILE)


def back_up(site: Site) -> bytes:
    """The disk, and the volume as it is."""
    site.back_up(1)
    site.do(store_of(site))
    return path_of(site, FILE).read_bytes()


def fetch_of(site: Site, file: str = BACK, size_bytes: int = SIZE) -> FetchVolume:
    return FetchVolume(volume=file, volume_bytes=size_bytes, **members(site))


def test_a_volume_is_there_beside_the_disk_and_comes_back_to_a_volume_that_may_be_larger(site: Site) -> None:
    then, before = site.shown(), names(site)
    content = back_up(site)
    assert site.do(store_of(site)) == "", "it is there already"
    assert site.bench.do(fetch_of(site)).changed
    assert path_of(site, BACK).read_bytes() == content
    assert not site.bench.do(fetch_of(site)).changed
    larger = f"larger.{OTHER[:-1]}0.raw"
    site.bench.do(fetch_of(site, larger, 2 * SIZE))
    assert path_of(site, larger).read_bytes() == content + bytes(SIZE)
    for file in (BACK, larger):
        site.bench.do(DeleteDataVolume(volume=file))
    assert names(site) == before
    site.put_back(1)
    assert site.shown() == then, "the disk's own is another file of the backup"
    for each in (site.members(1), members(site)):
        assert site.do(VerifyBackup(**each)) == ""


def test_all_parts_of_a_backup_are_listed_and_go_with_it(site: Site) -> None:
    back_up(site)
    lists = ListBackups(tenant="default", **{**site.members(0), "backup": "", "size_bytes": 0})
    ((backup, _, size, name, volumes),) = json.loads(site.do(lists))
    assert (backup, size, name, volumes) == (f"{1:036}", DISK_SIZE, "train", [[PART, SIZE]])
    site.do(RemoveBackup(**site.members(1)))
    assert json.loads(site.do(lists)) == []
    with pytest.raises(NotFound) as missing:
        site.do(fetch_of(site))
    assert missing.value.code == "backup.missing"
    assert BACK not in names(site)


def test_what_does_not_fit_or_is_not_whole_leaves_nothing(site: Site) -> None:
    back_up(site)
    before = names(site)
    with pytest.raises(Conflict) as larger:
        site.do(fetch_of(site, size_bytes=SIZE // 2))
    with pytest.raises(Fatal) as damaged:
        site.do(replace(fetch_of(site), size_bytes=SIZE // 2))
    with pytest.raises(Conflict) as differs:
        site.do(replace(store_of(site), backup=f"{2:036}", size_bytes=2 * SIZE))
    assert [error.value.code for error in (larger, damaged, differs)] == [
        "backup.larger", "backup.damaged", "volume.differs",
    ]  # fmt: skip
    assert names(site) == before
    assert site.bench.ledger.owner(f"data:{BACK}") is None


def test_what_was_fetched_is_put_in_the_volumes_place_once(site: Site) -> None:
    content = back_up(site)
    path_of(site, FILE).write_bytes(b"new" + bytes(SIZE - 3))
    site.do(fetch_of(site))
    put = ReplaceDataVolume(volume=FILE, of=BACK, copy=BACK, size_bytes=SIZE)
    site.bench.do(put)
    assert path_of(site, FILE).read_bytes() == content
    assert BACK not in names(site)
    assert site.bench.ledger.owner(f"data:{BACK}") is None
    site.bench.do(put)
    assert path_of(site, FILE).read_bytes() == content, "done again it is the same"
    site.do(fetch_of(site))
    site.bench.do(put)
    assert path_of(site, FILE).read_bytes() == content


def test_what_was_fetched_and_deleted_is_not_said_to_be_in_the_volumes_place(site: Site) -> None:
    back_up(site)
    site.do(fetch_of(site))
    put = ReplaceDataVolume(volume=FILE, of=BACK, copy=BACK, size_bytes=SIZE)
    site.bench.do(DeleteDataVolume(volume=BACK))
    with pytest.raises(NotFound) as missing:
        site.bench.do(put)
    assert missing.value.code == "volume.missing"
    site.do(fetch_of(site))
    site.bench.do(put)
    site.bench.do(DetachVolume(vm=site.bench.vm, volume=FILE))
    site.bench.do(DeleteDataVolume(volume=FILE))
    assert site.bench.ledger.owned("fetched:") == {}
