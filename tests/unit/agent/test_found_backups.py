# SPDX-License-Identifier: Apache-2.0
"""What is in a target is found by whoever has its secret, with the real restic."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from orchestrator.core.actions.backups import FindRepositories, ListBackups
from orchestrator.core.errors import Fatal, NotFound
from tests.unit.agent.bench import Bench
from tests.unit.agent.test_backups import SIZE, Site, furnished_site
from tests.unit.agent.test_backups_by_s3 import in_bucket


def check_found(site: Site, **members: Any) -> None:
    """Another site knows nothing but the target's secret."""
    site.back_up(1)
    site.back_up(2)
    find = FindRepositories(target="nas", **members)
    assert json.loads(site.bench.do(find).message) == [site.bench.vm]
    lists = ListBackups(tenant="default", **{**site.members(0), "backup": "", "size_bytes": 0})
    found = json.loads(site.do(lists))
    assert [(backup, size, name) for backup, _, size, name, _ in found] == [
        (f"{number:036}", SIZE, "train") for number in (1, 2)
    ]
    made = [datetime.fromisoformat(when).timestamp() for _, when, *_ in found]
    assert time.time() - 600 < made[0] < made[1] < time.time()
    assert json.loads(site.do(replace(lists, tenant="lab"))) == []
    with pytest.raises(Fatal) as closed:
        site.do(replace(lists, password="another"))
    assert closed.value.code == "backup.password"


def test_what_is_in_a_directory_is_found_by_the_name_that_its_vm_had(furnished: Bench) -> None:
    site = furnished_site(furnished)
    (site.repository.parent / "lost+found").mkdir()
    check_found(site)
    site.mount(mounted=False)
    with pytest.raises(NotFound) as absent:
        site.bench.do(FindRepositories(target="nas"))
    assert absent.value.code == "backup.no_target"


def test_what_is_in_a_bucket_is_found_by_the_name_that_its_vm_had(furnished: Bench) -> None:
    with in_bucket(furnished) as site:
        site.storage.objects["site-a/lost+found/x"] = b""
        check_found(site, bucket=site.bucket)
