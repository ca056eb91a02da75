# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from orchestrator.cli.inventory.writing import ansible_inventory
from orchestrator.core.errors import Unknown

HOST: dict[str, Any] = {
    "name": "gpu1", "address": "192.0.2.7", "port": 22, "user": "root", "state": "ready", "gpus": [], "labels": {},
    "software": None, "host_key": "", "cordoned": False, "vms": 0,
}  # fmt: skip
VM: dict[str, Any] = {
    "name": "train", "tenant": "default", "state": "running", "profile": "t4-small", "host": "gpu1", "addresses": [],
    "label": None,
}  # fmt: skip
LIES = ("-oProxyCommand=touch /tmp/x", "a b", "a\nb", "", "--", "$(id)", "{{ 7 * 7 }}", "../x", "\u202ea", None)


def _written(host: dict[str, Any], vm: dict[str, Any]) -> Any:
    return ansible_inventory(site="here", hosts=[host], vms=[vm], gpu_map={"gpus": []}, reach=lambda _vm: {})


def test_an_honest_server_is_written_as_it_says() -> None:
    assert set(_written(HOST, VM)["_meta"]["hostvars"]) == {"gpu1", "train.default"}
    assert _written({**HOST, "address": "2001:db8::7"}, VM)["_meta"]["hostvars"]["gpu1"]["ansible_port"] == 22


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("member", ["name", "address", "user", "port"])
def test_a_host_that_would_be_an_option_of_ssh_is_refused(member: str, lie: object) -> None:
    with pytest.raises(Unknown) as caught:
        _written({**HOST, member: lie}, VM)
    assert caught.value.code == "server.malformed"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("member", ["name", "tenant"])
def test_a_vm_that_would_be_an_option_of_ssh_is_refused(member: str, lie: object) -> None:
    with pytest.raises(Unknown):
        _written(HOST, {**VM, member: lie})
