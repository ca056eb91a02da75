# SPDX-License-Identifier: Apache-2.0
"""The dry run of an import and the server go by one set of rules; Ansible and ssh stand between them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from orchestrator.api.schemas.hosts import AddHostBody
from orchestrator.cli.inventory.reading import InventoryHost, read_inventory
from orchestrator.cli.inventory.wanted import wanted_hosts
from orchestrator.core.errors import InvalidInput
from orchestrator.services.hosts.hosts import HostService
from orchestrator.services.messages import HostKey
from tests.fakes.control_plane import control_plane
from tests.fakes.world import FINGERPRINT

Place = tuple[str, str, int, str]
_MEMBER: Final = {
    "vgpuctl_name": "name", "ansible_host": "address", "ansible_user": "user", "ansible_port": "port",
    "vgpuctl_gpus": "gpus",
}  # fmt: skip
ODD: dict[str, tuple[object, ...]] = {
    "vgpuctl_name": ("a", "A", "a_b", "a.b", "-a", "7", "a" * 63, "a" * 64),
    "ansible_host": (
        "192.0.2.7", "fe80::1%eno1", "2001:DB8::15", "::ffff:192.0.2.1", "gpu_02.example.com", "_gpu",
        "GPU-1.Example.COM", "a..b", "gpu-1.", "a,b", "ü", "a/b", "x" * 253, "x" * 254, "192.0.2.300",
        "[2001:db8::1]",
    ),
    "ansible_user": (
        "jane.doe", "Administrator", "svc_x-1", "_x", "7", "-x", ".x", "x@y", "x$", "DOMAIN\\x", "x" * 32, "x" * 33,
        "ü",
    ),
    "ansible_port": (1, 65535, 65536, -1, "x"),
    "vgpuctl_gpus": ("all", "unused", "0000:41:00.0", "0000:41:00.0,0000:61:00.0", "41:00.0", "none", "0000:41:00.0,"),
}  # fmt: skip


def test_what_the_dry_run_takes_the_server_takes_and_the_other_way_round(tmp_path: Path) -> None:
    cases = [(variable, value) for variable, values in ODD.items() for value in values]
    hosts = {
        f"h{number}": {"ansible_host": "192.0.2.1", "vgpuctl_name": "a", variable: value}
        for number, (variable, value) in enumerate(cases)
    }
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"all": {"hosts": hosts}}))
    inventory = read_inventory([str(path)], None)
    taken, differ = 0, []
    key = HostKey(type="ssh-ed25519", key="AAAA", fingerprint=FINGERPRINT)
    service = replace(control_plane(tmp_path).services.hosts, scan_key=lambda _address, _port: key)
    for number, case in enumerate(cases):
        planned = _planned(inventory[f"h{number}"])
        served = _served(service, {"name": "a", "address": "192.0.2.1", _MEMBER[case[0]]: case[1]})
        taken += planned is not None
        if planned != served:
            differ.append((case, planned, served))
    assert not differ, f"{differ}"
    assert 10 < taken < len(cases) - 10


def _planned(host: InventoryHost) -> Place | None:
    try:
        (wanted,) = wanted_hosts({"a": host})
    except InvalidInput:
        return None
    return wanted.name, wanted.address, wanted.port, wanted.user


def _served(service: HostService, said: dict[str, object]) -> Place | None:
    try:
        body = AddHostBody.model_validate({**said, "provisioning_key": "PRIVATE KEY", "fingerprint": FINGERPRINT})
        host = service.checked(body.to_request())
    except (ValidationError, InvalidInput):
        return None
    return host.name, host.address, host.port, host.provisioning_user
