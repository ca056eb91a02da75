# SPDX-License-Identifier: Apache-2.0
"""An A100 host gets another driver: its MIG layout and its VM's GPU instance are there again, and a driver that makes
no vGPU in MIG mode is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.drivers import PROVISIONED_WITHIN_S, bring, loaded
from tests.lab.enrolled import MIG_BACKED, Enrolled, enrol_alone
from tests.lab.test_mig_backed import bare

pytestmark = [pytest.mark.lab, pytest.mark.soak]

FIRST, SECOND, WITHOUT_VGPUS = "580.105.06", "580.126.08", "580.95.02"
"""The driver of the scenario, a newer one, and one that fails."""
LAYOUT = """\
version: v1
mig-configs:
  for-containers:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "3g.40gb": 1}
"""
IN_AN_INSTANCE = "in 1g.10gb at slot"
"""What the gate says of a vGPU that it tried in MIG mode."""


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    directory = tmp_path_factory.mktemp("bundles")
    with enrol_alone(replace(MIG_BACKED, first=0, gpus=2), tmp_path_factory.mktemp("state")) as one:
        for version, fails in ((FIRST, "none"), (SECOND, "none"), (WITHOUT_VGPUS, "vgpu")):
            bring(one.product, directory, version, fails)
        yield one


def standing(enrolled: Enrolled) -> dict[str, Any]:
    """Modes, GPU instances and functions past the product; the layout and the VM as it shows them."""
    product = enrolled.product
    product.ok("doctor")
    vm = product.json("show-vm", "train")
    return {
        "host": bare(enrolled.host),
        "instances": [
            (gpu["address"], one["profile"], one["start"], one["vms"], one["layout"])
            for gpu in product.json("mig", "show", enrolled.name)
            for one in gpu["gpu_instances"]
        ],
        "vm": (vm["state"], vm["devices"]),
    }


def upgrade(enrolled: Enrolled, version: str) -> tuple[int, Any, list[str]]:
    """Exit code, what became of the host, what its steps said."""
    product = enrolled.product
    code = product.run("driver", "upgrade", "--to", version, limit_s=PROVISIONED_WITHIN_S).code
    newest = product.json("operation", "list", "--kind", "upgrade_driver")[0]
    steps = product.json("operation", "show", newest["id"])["steps"]
    return code, product.json("maintenance", "show")["hosts"][0], [step["message"] for step in steps]


@pytest.mark.fault("F111", "F113")
def test_what_mig_has_is_there_again_after_an_upgrade_and_after_one_that_fails(
    enrolled: Enrolled, tmp_path: Path
) -> None:
    product = enrolled.product
    (tmp_path / "mig.yaml").write_text(LAYOUT)
    product.ok("mig", "apply", enrolled.name, "-f", str(tmp_path / "mig.yaml"), "-c", "for-containers")
    product.ok(*enrolled.request("train"))
    before = standing(enrolled)
    assert sorted(profile for _, profile, _, _, _ in before["instances"]) == [
        "1g.10gb",
        "1g.10gb",
        "1g.20gb",
        "3g.40gb",
    ]

    code, host, said = upgrade(enrolled, SECOND)
    assert (code, host["phase"], loaded(enrolled.host)) == (0, "done", SECOND), host
    assert any(IN_AN_INSTANCE in line for line in said), said
    assert standing(enrolled) == before
    assert enrolled.guest_pci_id in enrolled.guest_says("train")

    code, host, said = upgrade(enrolled, WITHOUT_VGPUS)
    assert (code != 0, host["phase"], loaded(enrolled.host)) == (True, "rolled_back", SECOND), host
    assert "vGPU" in host["why"]
    assert [one["code"] for one in product.run("doctor", "-o", "json").json()] == ["host.maintenance_failed"]
    product.ok("host", "uncordon", enrolled.name)
    assert standing(enrolled) == before
    assert enrolled.guest_pci_id in enrolled.guest_says("train")
    product.run("maintenance", "cancel")
    product.ok("mig", "release", enrolled.name, "--yes")
