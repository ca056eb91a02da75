# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.services.messages import VmChange
from tests.fakes.control_plane import T4_HOST, create_vm, plane_with


def test_a_protected_vm_stays_until_it_is_not(tmp_path: Path) -> None:
    with plane_with(tmp_path, T4_HOST) as plane:
        vms = plane.services.vms
        vms.create(replace(create_vm(), protected=True))
        for _ in range(2):  # while it is made, and then
            with pytest.raises(Conflict) as refused:
                vms.delete("default", "train")
            assert refused.value.code == "vm.protected"
            plane.engine.drain()
        assert vms.get("default", "train").state == "running"
        vms.change("default", "train", VmChange(labels={"a": "b"}))
        assert vms.get("default", "train").spec.protected
        vms.change("default", "train", VmChange(protected=False))
        assert vms.get("default", "train").spec.labels == (("a", "b"),)
        vms.delete("default", "train")
        plane.engine.drain()
        assert vms.list(None) == ()


def test_a_repeated_request_that_protects_does_not_pass_for_done(tmp_path: Path) -> None:
    with plane_with(tmp_path, T4_HOST) as plane:
        vms = plane.services.vms
        vms.create(create_vm())
        with pytest.raises(Conflict) as refused:
            vms.create(replace(create_vm(), protected=True))
        assert (refused.value.code, "--protect" in str(refused.value.hint)) == ("vm.labelled", True)
        vms.change("default", "train", VmChange(protected=True))
        assert vms.create(replace(create_vm(), protected=True)).existing
        assert vms.create(create_vm()).existing
