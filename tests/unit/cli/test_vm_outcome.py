# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.session import CliSession
from orchestrator.cli.vm_outcome import Outcome, each
from orchestrator.client.connection import Json
from orchestrator.core.errors import Fatal, NotFound


def test_each_vm_is_counted_once_whenever_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    def begin(name: str) -> Json:
        if name == "nobody":
            raise NotFound("vm.unknown", "there is no VM nobody", hint="'vgpuctl list-vms' shows them")
        return {}

    def end(name: str, started: Json) -> Outcome:
        if name == "later":
            raise Fatal("gpu.create_failed", "EIO", hint="look at the host's log")
        return started, [f"{name} is done"]

    with pytest.raises(NotFound) as caught:
        each(CliSession(), ["good", "later", "nobody", "good"], begin, end, wait=True)
    assert caught.value.message == "2 of 3 VMs could not be done"
    assert capsys.readouterr().out == "good is done\n"
