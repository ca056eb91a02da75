# SPDX-License-Identifier: Apache-2.0
"""A layout without VMs on an A100: cut, shown to containers, back after a reboot, left alone by VMs, released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.lab.conftest import LabHost, lab
from tests.lab.enrolled import MIG_BACKED, Enrolled, enrol
from tests.lab.gpu_host import refusals
from tests.lab.test_mig_backed import bare

pytestmark = pytest.mark.lab

_RESTORED_S = 300
"""An emulated host needs it for its agent's start."""
CONFIG = """\
version: v1
mig-configs:
  balanced:
    - device-filter: "0x20B510DE"
      devices: [1]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1, "7g.80gb": 0}
  all-disabled:
    - devices: all
      mig-enabled: false
"""


@pytest.fixture(scope="module")
def enrolled(a100: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    before = bare(a100)
    with enrol(MIG_BACKED, a100, tmp_path_factory.mktemp("state")) as one:
        yield one
    assert bare(a100) == before


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mig") / "config.yaml"
    made.write_text(CONFIG)
    return made


def layout(enrolled: Enrolled) -> list[tuple[str, int]]:
    """What the layout has on the host now."""
    enrolled.product.ok("doctor")
    seen = enrolled.product.json("gpu", "show", enrolled.name, enrolled.gpu)["gpu_instances"]
    return [(one["profile"], one["start"]) for one in seen if one["layout"]]


def test_a_layout_stands_without_vms_and_over_a_reboot_until_it_is_released(enrolled: Enrolled, file: Path) -> None:
    product, had = enrolled.product, refusals(enrolled.shell)
    options = (enrolled.name, "-f", str(file), "-c")
    assert product.run("mig", "plan", *options, "balanced").code == 3
    product.ok("mig", "apply", *options, "balanced")
    wanted = [("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4)]
    assert layout(enrolled) == wanted
    assert product.run("mig", "plan", *options, "balanced").code == 0
    for one in product.json("gpu", "show", enrolled.name, enrolled.gpu)["gpu_instances"]:
        (uuid,) = one["mig_devices"]
        assert uuid.startswith("MIG-")
        enrolled.shell(f"cat {' '.join(one['capabilities'])}")
    refused = product.refused(8, *enrolled.request("train"))
    assert "kept for a MIG layout" in refused.err + refused.out

    assert refusals(enrolled.shell) == had
    lab("reboot", enrolled.name)
    until = monotonic() + _RESTORED_S
    # Until the agent answers, what was seen before the reboot is all that is told.
    while (said := product.run("doctor")).code != 0 or layout(enrolled) != wanted:
        assert monotonic() < until, said.out
        sleep(5)
    product.ok("mig", "release", enrolled.name, "--yes")
    assert layout(enrolled) == []
    assert refusals(enrolled.shell) == 0
    product.ok(*enrolled.request("train"))
    in_use = product.refused(5, "mig", "apply", *options, "balanced")
    assert "VM default/train" in in_use.err
    product.ok("delete-vm", "train")
    product.ok("mig", "apply", *options, "all-disabled")
