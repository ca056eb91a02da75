# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl gpu cleanings``: what a VM left on a GPU, after it is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import running_server
from tests.fakes.typed import Cli


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("cleanings")) as directory:
        yield directory


def test_what_a_deleted_vm_had_is_listed_with_how_it_was_cleaned(cli: Cli) -> None:
    assert "no claims on GPUs have ended" in cli("gpu", "cleanings").out
    assert cli("create-vm", "train", "-p", "t4-small").code == 0
    assert cli("delete-vm", "train", "--yes").code == 0
    listed = cli("gpu", "cleanings", "--vm", "train")
    assert (listed.code, "train" in listed.out) == (0, True)
    (row,) = json.loads(cli("gpu", "cleanings", "-o", "json").out)
    assert (row["vm_name"], row["sanitising"]) == ("train", False)
