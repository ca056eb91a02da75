# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.shipped_offerings`` writes docs/reference/shipped-offerings.md: every offering that
comes with vgpuctl, with the lab host that can make a VM of it, or why none can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lab.scenario import Host, model_names, read_scenarios
from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.offerings.offering import Offering, unsupported
from tools.tree import ROOT

PAGE: Final = ROOT / "docs/reference/shipped-offerings.md"
_HEAD: Final = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Offerings that come with vgpuctl, and what shows them

Written by `make docs` from `vgpu_profiles/offerings`, the tables of NVIDIA's types and the lab's scenarios. *Lab host*:
one whose GPUs can give it; which kinds are tried there by tests is in [offerings.md](offerings.md).

| GPU | kind | offerings | lab host, or why none |
|---|---|---|---|
"""


def verdict(offering: Offering, hosts: tuple[Host, ...]) -> str:
    """The first lab host that gives it, or why none does."""
    missing = unsupported(offering)
    if missing:
        return f"refused: asks for {', '.join(missing)}"
    if offering.cpu == "pinned":
        return "none: an emulated lab host has one CPU and can keep none; shown on hosts in memory"
    found = next((host.name for host in hosts if _gives(host, offering)), None)
    if found is not None:
        return f"`{found}`"
    count = f"{offering.gpu_count} GPUs" if offering.gpu_count > 1 else "a GPU"
    return f"none: no lab host has {count} of the model"


def _gives(host: Host, offering: Offering) -> bool:
    models = set(models_of(offering))
    gpus = [gpu for gpu in host.gpus if gpu.model in models]
    if offering.kind == "passthrough":
        return sum(gpu.switch == 0 for gpu in gpus) >= offering.gpu_count
    if offering.kind == "mig_backed":
        return bool(gpus)
    return len(gpus) >= offering.vgpu_count


def models_of(offering: Offering) -> tuple[str, ...]:
    """GPU models that give it, by the tables."""
    kind = None if offering.vgpu_type is None else shipped().vgpu_type(offering.vgpu_type)
    return offering.gpu_models if kind is None else (kind.gpu_model,)


def rows() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """(GPU model, kind, verdict, names of offerings)"""
    there = read_scenarios(sorted((ROOT / "lab/scenarios").glob("*.yaml")), model_names())
    hosts = tuple(host for host in there if host.driver_version != "none")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for offering in shipped_profiles().offerings.values():
        key = (", ".join(models_of(offering)), offering.kind, verdict(offering, hosts))
        groups.setdefault(key, []).append(offering.name)
    yield from ((*key, tuple(names)) for key, names in sorted(groups.items()))


def page() -> str:
    """The whole page."""
    shown = ((model, kind, ", ".join(f"`{name}`" for name in names), said) for model, kind, said, names in rows())
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in shown)


if __name__ == "__main__":
    PAGE.write_text(page())
