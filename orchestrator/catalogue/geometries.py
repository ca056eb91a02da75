# SPDX-License-Identifier: Apache-2.0
"""GPU models of the catalogue as geometries, and names of models as people write them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from orchestrator.catalogue.catalogue import Catalogue, near_names
from orchestrator.core.geometry.build import MigRow, TypeRow, build_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.mig_profile import MigProfile, parse_mig_profile_name
from orchestrator.core.gpu.model import GpuModel

KINDS = {
    "mig": "mig",
    "mig_backed": "mig",
    "time_sliced": "time_sliced",
    "equal_size": "time_sliced",
    "mixed": "mixed",
    "mixed_size": "mixed",
    "passthrough": "passthrough",
}
"""Modes that ``modes_allowed`` may name, and the kind of cut each stands for."""
ALL_KINDS = frozenset(KINDS.values())


def find_model(catalogue: Catalogue, name: str) -> GpuModel | str:
    """The model that ``name`` means, or a sentence saying why it is not clear.

    Besides the catalogue's own names, the driver's names work, and parts of either that leave no doubt about
    how the GPU is cut (``A100-80GB`` stands for any A100 with 80 GB).
    """
    exact = catalogue.model(name)
    if exact is not None:
        return exact
    wanted = _words(name)
    own = [model for model in catalogue.gpu_models if wanted and wanted == _words(model.name)]
    named = [
        model
        for model in catalogue.gpu_models
        if name in model.driver_names or (len(wanted) > 1 and wanted in map(_words, model.driver_names))
    ]  # a word alone is a family: there are many H100 beside the one that its driver calls so
    telling = (model for model in catalogue.gpu_models if not model.named_by_id)
    models = own or named or [model for model in telling if wanted and wanted <= _all_words(model)]
    geometries = {catalogue_geometry(catalogue, model.name, ALL_KINDS).key[1:3] for model in models}
    if len(geometries) == 1:
        return models[0]
    if models:
        return f"GPU model {name!r} could be any of {', '.join(model.name for model in models[:6])}"
    near = near_names(name, [model.name for model in catalogue.gpu_models])
    return f"no GPU model is called {name!r}" + (f"; did you mean {', '.join(near)}?" if near else "")


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - {"nvidia", "tesla", "gpu"}


def _all_words(model: GpuModel) -> frozenset[str]:
    names = (model.name, *model.driver_names)
    return frozenset().union(*(_words(name) for name in names))


@lru_cache(maxsize=256)
def catalogue_geometry(catalogue: Catalogue, model_name: str, kinds: frozenset[str]) -> Geometry:
    """How a model of the catalogue can be cut in the given kinds of ways."""
    model = catalogue.model(model_name)
    if model is None:
        raise KeyError(model_name)
    memory_mib = (model.memory_gib or 0) * 1024
    types, mig = type_rows(catalogue, model), mig_rows(catalogue, model, memory_mib)
    return build_geometry(model.name, memory_mib, types=types, mig=mig, kinds=kinds)


def type_rows(catalogue: Catalogue, model: GpuModel) -> list[TypeRow]:
    """The vGPU types of a model as geometry takes them."""
    return [
        TypeRow(
            name=row.name, framebuffer_mib=row.framebuffer_mib, max_per_gpu=row.max_per_gpu,
            placement_ids=row.placement_ids, placement_size=row.placement_size,
            placement_region=row.placement_region, gi_profile=row.gi_profile, max_per_gi=row.max_per_gi,
        )
        for row in catalogue.types_of_model(model)
    ]  # fmt: skip


def mig_rows(
    catalogue: Catalogue, model: GpuModel, memory_mib: int, named: Collection[str] = frozenset()
) -> list[MigRow]:
    """The GPU-instance profiles of a model whose places are known, one of each name.

    ``named``: those that the GPU's driver lists; empty: it does not tell. Where boards of one device id name their
    profiles differently (GB200), the memory of the GPU tells which table is its own.
    """
    profiles = catalogue.profiles_of_model(model)
    if named:
        profiles = tuple(profile for profile in profiles if profile.name in named)
    else:
        board = _nearest_board(profiles, memory_mib)
        profiles = tuple(profile for profile in profiles if profile.board == board)
    rows = [
        MigRow(name=row.name, starts=row.starts, size=row.size, total_slots=row.total_slots,
               max_instances=row.max_instances, engines=_engines(row))
        for row in profiles
        if row.size is not None and row.total_slots is not None
    ]  # fmt: skip
    return list({row.name: row for row in rows}.values())


def _nearest_board(profiles: Iterable[MigProfile], memory_mib: int) -> str | None:
    """The board whose largest profile is named nearest to the GPU's memory."""
    largest: dict[str, int] = {}
    for profile in profiles:
        largest[profile.board] = max(largest.get(profile.board, 0), parse_mig_profile_name(profile.name).memory_gb)
    return min(largest, key=lambda board: abs(largest[board] * 1024 - memory_mib), default=None)


def _engines(row: MigProfile) -> tuple[tuple[str, int], ...]:
    counts = (
        ("nvdec", row.decoders), ("nvenc", row.encoders), ("jpeg", row.jpeg_engines), ("ofa", row.optical_flow_engines),
    )  # fmt: skip
    return tuple((kind, count) for kind, count in counts if count)
