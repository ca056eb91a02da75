# SPDX-License-Identifier: Apache-2.0
"""Where a VM has moved away, the next tenant's guest finds nothing of it in the same piece of the same GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.enrolled import SMALLEST
from tests.lab.test_cleaning import EMPTY, held
from tests.lab.two_hosts import two_hosts

pytestmark = pytest.mark.lab

_OFFERING = """schema_version: 1
offerings:
  - {name: whole, description: fills its GPU, kind: time_sliced, vgpu_type: GRID T4-16Q, migratable: true}
"""


def test_a_vm_that_moved_away_leaves_nothing_where_it_was(tmp_path: Path) -> None:
    with two_hosts(tmp_path / "state") as site:
        product, source = site.product, site.hosts["source"]
        (tmp_path / "whole.yaml").write_text(_OFFERING)
        product.ok("profile", "add", str(tmp_path / "whole.yaml"))
        product.ok("tenant", "create", "blue")
        for how in ((), ("--cold",)):
            site.start("whole")
            site.count("whole")
            product.run("doctor")
            product.ok("vm", "move", "whole", "--to", "target", *how, limit_s=600)
            words = ("--profile", "whole", "--host", "source", "--image", "counting", *SMALLEST)
            product.ok("create-vm", "next", "--tenant", "blue", *words)
            vm = product.json("show-vm", "next", "--tenant", "blue")
            assert held(source.run, vm["id"]) == EMPTY, how
            (gpu,) = (device["gpu"] for device in vm["devices"])
            (row,) = product.json("gpu", "cleanings", "--host", "source", "--gpu", gpu, "--limit", "1")
            assert row["method"] == "vgpu_destroyed", how
            product.ok("delete-vm", "next", "--tenant", "blue", "--yes")
            product.ok("delete-vm", "whole", "--yes")
        product.ok("tenant", "delete", "blue", "--yes")
