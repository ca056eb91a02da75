# SPDX-License-Identifier: Apache-2.0
"""What the key of a quota means: who may have two ``t4-2q`` may not have more of them under NVIDIA's own name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from orchestrator.catalogue.catalogue import Catalogue, near_names, shipped
from orchestrator.catalogue.geometries import find_model
from orchestrator.catalogue.profiles import Profiles
from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name, parse_vgpu_type_name
from orchestrator.core.hosts.snapshot import HostVgpuType
from orchestrator.core.tenancy.quota import check_resource

_BY_MODEL: Final = frozenset({"devices", "whole-gpus"})


def resolved_resource(name: str, profiles: Profiles, *, host_types: Collection[str] = ()) -> str:
    """``vgpus:t4-2q`` → ``vgpus:GRID T4-2Q``, ``devices:Tesla T4`` → ``devices:T4``; what needs no look-up stays.

    :raises InvalidInput: ``quota.resource_unknown``: no quota is called so
    :raises NotFound: ``quota.name_unknown``: it would limit nothing
    """
    kind, narrowed, wanted = check_resource(name).partition(":")
    if not narrowed:
        return name
    counted = _board(name, profiles, host_types) if kind in _BY_MODEL else _profile(wanted, profiles, host_types)
    return f"{kind}:{counted}"


def check_is_here(resource: str, boards: Mapping[str, int]) -> None:
    """``resource``: as :func:`resolved_resource` has it; ``boards``: GPUs of the site by model. Where there is none yet
    nothing is checked.

    :raises NotFound: ``quota.none_here``, with the models that may have been meant
    """
    kind, _, wanted = resource.partition(":")
    board = _board_of(wanted) if kind == "vgpus" and is_vgpu_type_name(wanted) else wanted if kind in _BY_MODEL else ""
    if not board or not boards or board in boards:
        return
    near = [f"{name} ({boards[name]} here)" for name in near_names(board, boards) or sorted(boards)]
    raise NotFound(
        "quota.none_here",
        f"no GPU here is of model {board}, so {resource} would limit nothing",
        hint=f"did you mean {' or '.join(near)}? --anyway sets it before such a GPU is here",
    )


def boards_of(model: str, types: Collection[HostVgpuType]) -> set[str]:
    """How quotas name a GPU of this model whose driver offers these types: ``H100XM``. One that is in no
    table and has no types: by its own name."""
    offered = {_board_of(vgpu_type.name) for vgpu_type in types if is_vgpu_type_name(vgpu_type.name)}
    return offered | _boards_of_model(model, shipped()) or {model.removeprefix("NVIDIA ")}


@lru_cache(maxsize=256)
def board_name(model: str) -> str:
    """How names of the vGPU types of a GPU model begin (``GRID T4``), which is what quotas count its whole GPUs as."""
    known = shipped()
    model_row = known.model(model)
    types = known.types_of_model(model_row) if model_row is not None else ()
    first = next(
        (parse_vgpu_type_name(vgpu_type.name) for vgpu_type in types if is_vgpu_type_name(vgpu_type.name)), None
    )
    return f"NVIDIA {model}" if first is None else f"{first.brand} {first.board}"


@lru_cache(maxsize=256)
def models_of(board: str) -> str:
    """The inverse, for people: ``H100 SXM5 80GB``. A few models differ in nothing that their vGPU types tell."""
    names = [model.name for model in shipped().gpu_models if board_name(model.name) == board]
    return " or ".join(names) or board.removeprefix("NVIDIA ")


def _profile(wanted: str, profiles: Profiles, host_types: Collection[str]) -> str:
    try:
        offering = profiles.resolve(wanted, host_types=host_types)
    except NotFound as error:
        raise _unknown(f"vgpus:{wanted}", error.hint) from error
    if offering.kind == "mig":  # whose VMs have vGPUs of some type, as those have who ask for that type
        hint = "'mig-slices' counts GPU instances, vgpus:TYPE the vGPUs of one MIG-backed type"
        raise _unknown(f"vgpus:{wanted}", hint)
    return offering.vgpu_type or offering.name


def _board(resource: str, profiles: Profiles, host_types: Collection[str]) -> str:
    """As the names of vGPU types have it: that is what is counted."""
    wanted = resource.partition(":")[2]
    boards = {_board_of(name) for name in (*profiles.catalogue.type_names, *host_types) if is_vgpu_type_name(name)}
    if wanted in boards:
        return wanted
    own = _boards_of_model(wanted, profiles.catalogue)
    if len(own) == 1:
        return own.pop()
    near = near_names(wanted, boards | own)
    raise _unknown(resource, f"did you mean {' or '.join(near)}?" if near else None)


def _boards_of_model(wanted: str, catalogue: Catalogue) -> set[str]:
    model = find_model(catalogue, wanted)
    types = catalogue.types_of_model(model) if isinstance(model, GpuModel) else ()
    return {_board_of(vgpu_type.name) for vgpu_type in types}


def _board_of(type_name: str) -> str:
    return parse_vgpu_type_name(type_name).board


def _unknown(resource: str, hint: str | None) -> NotFound:
    return NotFound(
        "quota.name_unknown",
        f"there is nothing that a quota for {resource[:80]!a} could count",
        hint=hint or "devices:MODEL (devices:L40S) or vgpus:PROFILE; 'vgpuctl profile list' has the profiles",
    )
