# SPDX-License-Identifier: Apache-2.0
"""What keeps a host marked after a restore is in the list by which a person settles it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import pytest

from orchestrator.cli.restored import items_of
from orchestrator.client.client import Client
from orchestrator.core.diff import host_findings
from orchestrator.core.diff.finding import Finding, tells_of_something_newer, vm_finding
from orchestrator.core.hosts.host import UNSETTLED
from tests.unit.core.test_diff import HOST, vm

TRAIN = vm("train")
RESTORED = host_findings(replace(HOST, restored="seen"))


@dataclass(frozen=True)
class Site:
    """As its server tells it: findings, and no stuck operation."""

    found: Sequence[Finding]

    def observe_findings(self, _host: str | None) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.found]

    def operations(self, **_: object) -> list[dict[str, Any]]:
        return []


def listed(*found: Finding) -> list[tuple[str, str]]:
    return [(one.id, one.ways) for one in items_of(cast("Client", Site(found)))]


@pytest.mark.fault("F99")
@pytest.mark.parametrize("code", sorted(UNSETTLED))
def test_each_finding_that_keeps_a_host_marked_is_listed_with_a_way_to_settle_it(code: str) -> None:
    finding = vm_finding(TRAIN, code, "error", ("this", "that"), "why")
    assert tells_of_something_newer(finding)
    ((item, ways),) = listed(*RESTORED, finding)
    assert item == TRAIN.id
    assert "-vm" in ways


def test_a_vm_is_listed_once_by_the_worst_of_it() -> None:
    codes = ("vm.not_running", "vm.domain_missing", "vm.volume_missing", "vm.device_differs")
    found = [vm_finding(TRAIN, code, "error", ("this", "that"), "why") for code in codes]
    assert listed(*RESTORED, *found) == [(TRAIN.id, "start-vm or delete-vm")]


def test_a_host_that_no_restore_has_marked_has_nothing_to_be_settled() -> None:
    assert listed(vm_finding(TRAIN, "vm.not_running", "error", ("running", "shut off"), "why")) == []
