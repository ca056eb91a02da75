# SPDX-License-Identifier: Apache-2.0
"""An HGX baseboard of a lab host: module ids, partitions by fmpm, and the service that wants the driver's version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.conftest import LabHost

pytestmark = pytest.mark.lab

_UNIT = "nvidia-fabricmanager"
_FABRIC = "/run/vgpu-lab/fabric.json"


class Fabric:
    def __init__(self, host: LabHost) -> None:
        self.host = host

    def code(self, arguments: str) -> int:
        return int(self.host.run(f"fmpm {arguments} >&2; echo $?"))

    def partitions(self) -> dict[int, dict[str, Any]]:
        return {row["partitionId"]: row for row in json.loads(self.host.run("fmpm -l"))["partitionInfo"]}

    def restart(self) -> None:
        self.host.run(f"systemctl restart {_UNIT}; n=0; until fmpm -l >/dev/null; do n=$((n+1)); "
                      "[ $n -lt 60 ] || exit 1; sleep 1; done")  # fmt: skip


@pytest.fixture
def fabric(h100_hgx: LabHost) -> Fabric:
    fabric = Fabric(h100_hgx)
    fabric.restart()
    return fabric


def test_module_ids_do_not_follow_the_pci_order(fabric: Fabric) -> None:
    rows = fabric.host.run("nvidia-smi --query-gpu=pci.bus_id,module_id --format=csv,noheader").strip().splitlines()
    by_address = dict(row.split(", ") for row in sorted(rows))
    assert list(by_address.values()) == ["7", "5", "6", "8", "1", "3", "4", "2"]
    listed = {str(gpu["physicalId"]): gpu["pciBusId"] for gpu in fabric.partitions()[0]["gpuInfo"]}
    assert {address: module for module, address in listed.items()} == by_address


def test_partitions_are_activated_unless_they_overlap(fabric: Fabric) -> None:
    assert [fabric.code(words) for words in ("-a 1", "-a 3", "-a 5", "-d 1", "-a 3")] == [0, 249, 0, 0, 0]
    assert {number for number, row in fabric.partitions().items() if row["isActive"]} == {3, 5}


def test_a_gpu_in_a_guests_hands_has_no_name_in_the_fabric(fabric: Fabric) -> None:
    bus_id = fabric.partitions()[7]["gpuInfo"][0]["pciBusId"]
    device = f"pci_{bus_id[4:].lower().translate(str.maketrans(':.', '__'))}"
    fabric.host.run(f"virsh nodedev-detach {device}")
    try:
        first = fabric.partitions()[7]["gpuInfo"][0]
    finally:
        fabric.host.run(f"virsh nodedev-reattach {device}")
    assert (first["physicalId"], first["uuid"], first["pciBusId"]) == (1, "", "")


def test_the_service_does_not_start_beside_another_driver(fabric: Fabric) -> None:
    fabric.host.run(f"cp {_FABRIC} /tmp/fabric.json; sed -i 's/580.105.06/570.172.07/' {_FABRIC}; "
                    f"systemctl restart {_UNIT} || true; sleep 5")  # fmt: skip
    try:
        assert fabric.host.run(f"systemctl is-active {_UNIT} || true").strip() == "failed"
        assert "don't match with driver version" in fabric.host.run(f"journalctl -u {_UNIT} -n 20")
        assert fabric.code("-l") == 247
    finally:
        fabric.host.run(f"cp /tmp/fabric.json {_FABRIC}")
        fabric.restart()
