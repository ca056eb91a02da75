# SPDX-License-Identifier: Apache-2.0
"""GPUs that tenants share although they are to be kept apart: from before that was said, or by adoption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

from orchestrator.core.diff.finding import Finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, Isolation, may_share_gpu
from orchestrator.core.vms.vm import Vm


def tenants_by_gpu(vms: Iterable[Vm]) -> dict[str, set[str]]:
    """Of the VMs that have a place, on GPUs and in GPU instances with more than one tenant."""
    found: dict[str, set[str]] = {}
    for vm in vms:
        for device in vm.devices if vm.deallocated is None else ():
            places = (device.gpu, f"{device.gpu}, GPU instance at slot {device.gi_start}")
            for place in places if device.gi_start is not None else places[:1]:
                found.setdefault(place, set()).add(vm.spec.tenant)
    return {gpu: tenants for gpu, tenants in found.items() if len(tenants) > 1}


def sharing_findings(
    host: Host, shared: Mapping[str, set[str]], divided: frozenset[str], isolations: Mapping[str, Isolation]
) -> Iterator[Finding]:
    """One for each GPU. ``shared``: of :func:`tenants_by_gpu`. ``divided``: GPUs in MIG mode.
    ``isolations``: of tenants that have another one than the default."""
    for gpu, tenants in sorted(shared.items()):
        wishes = [isolations.get(tenant, DEFAULT_ISOLATION) for tenant in sorted(tenants)]
        if all(may_share_gpu(*pair, divided=gpu in divided) for pair in combinations(wishes, 2)):
            continue
        strict = next(tenant for tenant, wish in zip(sorted(tenants), wishes, strict=True) if wish != "none")
        yield Finding(
            code="gpu.shared", severity="warning", host=host.name, subject=f"GPU {gpu}", vm=None, whose="ours",
            wanted="VMs of one tenant", observed=f"VMs of {', '.join(sorted(tenants))}", repair=None,
            reason="they were placed before their tenants were to be kept apart; delete one, or "
            f"'vgpuctl tenant set {strict} --isolation none' lets them share",
        )  # fmt: skip
