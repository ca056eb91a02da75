# SPDX-License-Identifier: Apache-2.0
"""Reads ``fleet.yaml``: groups of equal hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.geometries import ALL_KINDS, KINDS, catalogue_geometry, find_model
from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml, read_yaml
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.gpu.model import FabricPartition, GpuModel
from orchestrator.core.hosts.features import HostFeature
from orchestrator.core.hosts.pool import MAX_NAME
from orchestrator.core.names import NAME_PATTERN, near
from orchestrator.core.offerings.offering import PAGE_KIB
from orchestrator.core.placement.views import GpuView, HostView

MAX_GPUS = 2_000_000
_GPUS_OF_A_BASEBOARD = 8
"""A host with so many GPUs of a model that sits on NVSwitch baseboards has one of those."""


class HostGroup(BaseModel):
    """``count`` hosts that are all alike."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str | None, Field(max_length=50, pattern=f"^(?:{NAME_PATTERN})$")] = None
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    gpu_model: Annotated[str, Field(min_length=1, max_length=100)]
    gpus_per_host: Annotated[int, Field(ge=1, le=16)]
    vcpus: Annotated[int, Field(ge=1, le=100_000)]
    memory_gib: Annotated[float, Field(gt=0, le=1_000_000, strict=False)]
    baseboard: Annotated[str | None, Field(max_length=100)] = None
    driver: Annotated[str | None, Field(pattern=r"^[0-9]{3}(\.[0-9]{1,3}){1,2}$")] = None
    """Of simulated hosts (``serve --simulate``): the version that they begin with."""
    refuses_drivers: list[str] = Field(default_factory=list, max_length=100)
    """Of the same: versions that do not come up there."""
    sticky_drivers: list[str] = Field(default_factory=list, max_length=100)
    """Of the same: versions that come only over a reboot, because the module before them stays in use."""
    readings: Literal["live", "slow", "silent"] = "live"
    """Of the same: whether what GPUs and VMs do is told each ten seconds, told late, or not told."""
    signals: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{1,40}$")]] = Field(default_factory=list, max_length=8)
    """Of the same: what each host's first GPU tells of itself until it is reset, by the names of ``health rules``."""
    numa_nodes: Annotated[int, Field(ge=1, le=16)] = 1
    """Of the same: nodes among which CPUs, memory and GPUs are divided."""
    hugepages_gib: dict[Literal["2M", "1G"], Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default_factory=dict)
    """Of the same: how much of the memory is kept as huge pages of a size."""
    lacks: list[HostFeature] = []
    """Of the same: which of what software can give VMs it does not have."""
    nics_per_host: Annotated[int, Field(ge=0, le=16)] = 0
    """Of the same: network cards of seven virtual functions each; the first is under the first GPU's PCIe switch, …"""
    pools: list[Annotated[str, Field(max_length=MAX_NAME, pattern=f"^(?:{NAME_PATTERN})$")]] = []
    """Of the same: directories that are mounted there as pools, the same for all groups that name it."""
    mediated: bool = False
    """Of the same: its kernel makes vGPUs on virtual functions as mediated devices."""
    modes_allowed: list[str] = Field(default_factory=lambda: sorted(ALL_KINDS), min_length=1)

    @property
    def pages(self) -> tuple[tuple[int, int], ...]:
        """(KiB of a huge page, how many)"""
        sizes = ((PAGE_KIB[size], gib) for size, gib in self.hugepages_gib.items())
        return tuple(sorted((kib, gib * 1024 * 1024 // kib) for kib, gib in sizes))


def read_fleet(path: Path, catalogue: Catalogue) -> tuple[HostView, ...]:
    """All hosts of the file, as placement sees them.

    :raises InvalidInput: see :func:`read_groups`
    """
    groups = read_groups(path, catalogue)
    return tuple(host for number, group in enumerate(groups) for host in _hosts(group, number, catalogue))


def host_names(group: HostGroup, number: int) -> list[str]:
    """Names of the hosts of a group, which is number ``number`` of its file."""
    return [f"{_prefix(group, number)}-{i}" for i in range(group.count)]


def read_groups(path: Path, catalogue: Catalogue) -> tuple[HostGroup, ...]:
    """The groups of the file: a list of them, or a mapping with the list under ``groups``.

    :raises InvalidInput: ``fleet.invalid`` with file, line and reason of every mistake
    """
    try:
        document = read_yaml(path)
    except InvalidInput as error:
        reasons = tuple(Reason(code="fleet.invalid", message=r.message, subjects=r.subjects) for r in error.reasons)
        raise InvalidInput("fleet.invalid", error.message, hint=_HINT, reasons=reasons) from error
    items, where = _groups(document)
    problems: list[Problem] = []
    groups: list[HostGroup] = []
    prefixes: set[str] = set()
    gpus = 0
    for number, item in enumerate(items):
        path_here: tuple[str | int, ...] = (*where, number)
        try:
            group = HostGroup.model_validate(item)
        except ValidationError as error:
            problems += [
                Problem(
                    file=document.file,
                    line=document.line_of((*path_here, *detail["loc"])),
                    reason=describe(detail, HostGroup),
                )
                for detail in error.errors(include_url=False)
            ]
            continue
        wrong = list(_check(group, catalogue))
        if _prefix(group, number) in prefixes:
            wrong.append(("name", f"name: another group's hosts are called {_prefix(group, number)!r} too"))
        prefixes.add(_prefix(group, number))
        problems += [
            Problem(file=document.file, line=document.line_of((*path_here, field)), reason=reason)
            for field, reason in wrong
        ]
        groups.append(group)
        gpus += group.count * group.gpus_per_host
    if gpus > MAX_GPUS:
        problems.append(Problem(file=document.file, line=1, reason=f"more than {MAX_GPUS} GPUs"))
    if problems:
        raise problems_error("fleet.invalid", problems, _HINT)
    return tuple(groups)


_NEEDED: Final = [name for name, field in HostGroup.model_fields.items() if field.is_required()]
_HINT: Final = (
    f"a group has {', '.join(_NEEDED)} and, if wanted,"
    f" {', '.join(name for name in HostGroup.model_fields if name not in _NEEDED)}"
)


def problems_error(code: str, problems: list[Problem], hint: str) -> InvalidInput:
    """One error for all mistakes of a file."""
    first, more = problems[0], len(problems) - 1
    reasons = tuple(Reason(code=code, message=p.reason, subjects=(f"{p.file}:{p.line}",)) for p in problems)
    return InvalidInput(code, f"{first}" + (f" (and {more} more)" if more else ""), hint=hint, reasons=reasons)


def _groups(document: LinedYaml) -> tuple[list[object], tuple[str, ...]]:
    data, where = document.data, ()
    if isinstance(data, dict):
        unknown = sorted(str(key) for key in data if key != "groups")
        if unknown:
            where_to = ": it belongs in a group" if unknown[0] in HostGroup.model_fields else ""
            reason = f"unknown {unknown[0]}{where_to}"
            problem = Problem(file=document.file, line=document.line_of((unknown[0],)), reason=reason)
            raise problems_error("fleet.invalid", [problem], _HINT)
        return _as_list(document, data.get("groups")), ("groups",)
    return _as_list(document, data), where


def _as_list(document: LinedYaml, data: object) -> list[object]:
    if not isinstance(data, list) or not data:
        problem = Problem(file=document.file, line=1, reason="a list of groups of hosts is expected")
        raise problems_error("fleet.invalid", [problem], _HINT)
    return data


def _check(group: HostGroup, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """(field, reason) of what the types cannot say."""
    model = find_model(catalogue, group.gpu_model)
    if isinstance(model, str):
        yield "gpu_model", f"gpu_model: {model}"
    for mode in group.modes_allowed:
        if mode not in KINDS:
            yield "modes_allowed", f"modes_allowed: {mode!r} is not one of {', '.join(KINDS)}"
    for name in group.signals:
        if name not in catalogue.signal_meanings:
            hint = near(name, catalogue.signal_meanings, "vgpuctl health rules")
            yield "signals", f"signals: no signal is called {name!r}; {hint}"
    if group.baseboard is not None and not _on_board(group.baseboard, catalogue):
        known = sorted({p.baseboard for p in catalogue.fabric_partitions})
        yield "baseboard", f"baseboard: the partitions of {group.baseboard!r} are not known, only of {', '.join(known)}"


def partitions_of(group: HostGroup, catalogue: Catalogue) -> tuple[FabricPartition, ...]:
    """Of the baseboard in each host of the group; empty: there is none, or its partitions are not known."""
    model = find_model(catalogue, group.gpu_model)
    own = model.baseboard if isinstance(model, GpuModel) and group.gpus_per_host == _GPUS_OF_A_BASEBOARD else None
    baseboard = group.baseboard or own
    return _on_board(baseboard, catalogue) if baseboard else ()


def _on_board(baseboard: str, catalogue: Catalogue) -> tuple[FabricPartition, ...]:
    exact = tuple(p for p in catalogue.fabric_partitions if p.baseboard == baseboard)
    return exact or catalogue.partitions_of(baseboard)


def _prefix(group: HostGroup, number: int) -> str:
    """What the names of the group's hosts begin with."""
    return group.name or f"{re.sub(r'[^a-z0-9]+', '-', group.gpu_model.lower()).strip('-')}-{number}"


def _hosts(group: HostGroup, number: int, catalogue: Catalogue) -> Iterator[HostView]:
    model = find_model(catalogue, group.gpu_model)
    if not isinstance(model, GpuModel):
        return
    kinds = frozenset(KINDS[mode] for mode in group.modes_allowed)
    geometry = catalogue_geometry(catalogue, model.name, kinds - {"passthrough"})
    whole = "passthrough" in kinds
    gpus = tuple(
        GpuView(gpu_id=str(i), geometry=geometry, numa=i * 2 // group.gpus_per_host, module_id=i + 1)
        for i in range(group.gpus_per_host)
    )
    partitions = tuple(partition.module_ids for partition in partitions_of(group, catalogue))
    for name in host_names(group, number):
        yield HostView(
            host_id=name, name=name, free_vcpus=group.vcpus,
            free_memory_mib=int(group.memory_gib * 1024),
            gpus=gpus, fabric_partitions=partitions, whole_gpus=whole,
        )  # fmt: skip
