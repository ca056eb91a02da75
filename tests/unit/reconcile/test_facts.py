# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.reconcile.wanted import fact_findings
from tests.fakes.control_plane import L40S_HOST, plane_with


def test_a_gpu_that_our_tables_know_otherwise_is_told_of_once_and_nothing_is_repaired(tmp_path: Path) -> None:
    with plane_with(tmp_path, L40S_HOST) as plane:
        with plane.store.read() as tx:
            host, snapshot = tx.hosts.get(L40S_HOST), tx.hosts.snapshot(L40S_HOST)
        assert snapshot is not None
        assert list(fact_findings(host, snapshot)) == []
        (found,) = fact_findings(host, _with_other_maximum(snapshot))
        assert (found.code, found.subject, found.repair) == ("gpu.facts_differ", "GPU 0000:81:00.0", None)
        assert (found.wanted, found.observed) == ("NVIDIA L40S-12Q: 4", "NVIDIA L40S-12Q: 5")
        strange = replace(host, managed_gpus=())
        assert list(fact_findings(strange, _with_other_maximum(snapshot))) == []

        plane.machine(L40S_HOST).gpus[0].types = _with_other_maximum(snapshot).gpus[0].types
        plane.reconciler.observe(L40S_HOST)
        listed = plane.findings.list(host=L40S_HOST)
        assert [one.finding.code for one in listed] == ["gpu.facts_differ"]


def _with_other_maximum(snapshot: HostSnapshot) -> HostSnapshot:
    first, *others = snapshot.gpus
    types = tuple(replace(one, max_instances=5) if one.name.endswith("-12Q") else one for one in first.types)
    return replace(snapshot, gpus=(replace(first, types=types), *others))
