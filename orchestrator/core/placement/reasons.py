# SPDX-License-Identifier: Apache-2.0
"""Why nothing fits: one reason per group of hosts or GPUs that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.core.errors import Reason
from orchestrator.core.geometry.board import other_models
from orchestrator.core.geometry.cut import MIXES, Cut
from orchestrator.core.placement.constraints import closed_to, gpu_obstacles, host_obstacles
from orchestrator.core.placement.engine import PlacementEngine, demand_of
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rules import CODES, LASTING
from orchestrator.core.placement.rules.labels import kept_for_another
from orchestrator.core.placement.state_table import StateTable
from orchestrator.core.placement.views import Refusal, Request
from orchestrator.core.units import MIB, show_size

_MAX_SUBJECTS = 20
_NO_HOSTS = Reason(code="host.none", message="there are no hosts with GPUs")
NOT_MEANT = frozenset({"profile.unsupported", "host.other", "host.no_snapshot", "gpu.other"})
"""Of hosts and GPUs that could never have it."""

_NEVER = LASTING | {"host.too_small"}
"""Of a host, whatever goes from it."""
_BEFORE_ITS_GPUS = _NEVER - {"host.too_small"}
"""Who asks for GPUs that a host has not, need not hear how many vCPUs it has."""

_MESSAGES = {
    "profile.unsupported": "the GPU cannot hold {profile}",
    "gpu.no_capacity": "too few free slots for {profile}",
    "gpu.fragmented": "enough free slots for {profile}, but not where it may lie",
    "gpu.other_size_in_use": "the GPU holds vGPUs of another size and takes one size only",
    "gpu.other_cut_in_use": "the GPU is in use in a mode that has no {profile}",
    "gpu.no_partition": "{count} GPUs are free, but they do not form a partition or set for {profile}",
    "gpu.too_few": "fewer free GPUs than {profile} needs",
    "gpu.not_whole": "the GPU cannot be given out as a whole",
    "gpu.alone": "the GPU cannot be given out together with others",
    "gpu.unusable": "the GPU may not be used",
    "gpu.no_mixed_sizes": "the GPU's driver mixes no sizes on it",
    "host.no_gpus": "the host has no GPUs",
    "host.cordoned": "the host is cordoned",
    "host.kept": "the host is kept for another tenant",
    "host.too_small": "the host itself has fewer than {vcpus} vCPUs",
    "host.vcpus": "too few free vCPUs for {vcpus}",
    "host.memory": "too little free memory for {memory}",
    "host.devices": "the host has room for fewer than {devices} devices of {profile}",
}


def refusal(engine: PlacementEngine, request: Request, hosts: Iterable[FleetHost] | None = None) -> Refusal:
    """All reasons for a request that nothing fits, biggest group first. Looks at every GPU of ``hosts``, None: of all
    that the engine has."""
    groups: dict[tuple[str, str], list[str]] = {}
    for host in engine.fleet.hosts if hosts is None else hosts:
        for code, message, subject in _of_host(engine, request, host):
            groups.setdefault((code, message), []).append(subject)
    if not groups:
        return Refusal((_NO_HOSTS,))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return Refusal(
        tuple(
            Reason(code=code, message=message, subjects=tuple(names[:_MAX_SUBJECTS]), count=len(names))
            for (code, message), names in ordered
        )
    )


def leading_reason(engine: PlacementEngine, request: Request, hosts: Iterable[tuple[FleetHost, int]]) -> Reason:
    """Of a request that nothing fits: what keeps it off most of the GPUs that could have it.

    ``hosts``: of the engine, with how many each stands for."""
    groups = Counter[tuple[str, str]]()
    for host, number in hosts:
        for code, message, _ in _of_host(engine, request, host):
            groups[code, message] += number
    meant = {group: number for group, number in groups.items() if group[0] not in NOT_MEANT} or groups
    if not meant:
        return _NO_HOSTS
    (code, message), number = min(meant.items(), key=lambda item: (-item[1], item[0]))
    return Reason(code=code, message=message, count=number)


def _of_host(engine: PlacementEngine, request: Request, host: FleetHost) -> Iterator[tuple[str, str, str]]:
    """(code, message, subject) of a host, or of each of its GPUs: what can never be before what is not so now."""
    obstacles = list(host_obstacles(request, host))
    code = next((obstacle for obstacle in obstacles if obstacle in _NEVER), obstacles[0] if obstacles else None)
    if not host.gpus and code in {None, "host.too_small"}:
        if request.host is not None:
            yield "host.no_gpus", _message("host.no_gpus", request), host.view.name
    elif code is not None and code not in _BEFORE_ITS_GPUS and _holds_none(engine, request, host):
        what = _no_such_set(engine, request, host) if request.whole_gpus else _unsupported(request)
        yield from ((*what, _subject(host, gpu)) for gpu in host.gpus)
    elif code is not None:
        if code == "host.cordoned" and host.view.reason is not None:
            yield host.view.reason_code, host.view.reason, host.view.name
        else:
            keeper = kept_for_another(host.view.facts, request.tenant) if code == "host.kept" else None
            yield code, _message(code, request, keeper), host.view.name
    elif request.whole_gpus:
        yield from _of_board(engine, request, host)
    else:
        yield from _of_gpus(engine, request, host)


def _unsupported(request: Request) -> tuple[str, str]:
    return "profile.unsupported", _message("profile.unsupported", request)


def _no_such_set(engine: PlacementEngine, request: Request, host: FleetHost) -> tuple[str, str]:
    """Of a host that has no GPUs of the models, or as many and no set of them."""
    code, message = _unsupported(request)
    if request.gpu_models and not any(gpu.table.geometry.model in request.gpu_models for gpu in host.gpus):
        return code, f"it has no {' or '.join(request.gpu_models)}"
    board = engine.fleet.boards[host.board].cut
    sizes = sorted(map(board.size, board.shapes))
    if request.whole_gpus in sizes or not sizes or sizes[-1] < request.whole_gpus:
        return code, message
    return code, f"its GPUs are given out in sets of {', '.join(map(str, sizes))}, not of {request.whole_gpus}"


def _subject(host: FleetHost, gpu: Gpu) -> str:
    return f"{host.view.name}/{gpu.view.gpu_id}"


def _holds_none(engine: PlacementEngine, request: Request, host: FleetHost) -> bool:
    """Whether none of its GPUs could ever hold what is asked for, were they empty."""
    if not request.whole_gpus:
        return bool(host.gpus) and not any(has_profile(request, gpu) for gpu in host.gpus)
    board, models = engine.fleet.boards[host.board].cut, [gpu.table.geometry.model for gpu in host.gpus]
    fits = board.slots >= request.whole_gpus and f"gpu:{request.whole_gpus}" in board.shapes
    return bool(host.gpus) and not (fits and other_models(models, request.gpu_models))


def has_profile(request: Request, gpu: Gpu) -> bool:
    """Whether the GPU can ever hold a device of the request, were it empty."""
    return bool(gpu.table.options(demand_of(request))) or gpu.table.geometry.supports(request.profile)


def _of_gpus(engine: PlacementEngine, request: Request, host: FleetHost) -> Iterator[tuple[str, str, str]]:
    codes = [(gpu, gpu_reason(request, gpu)) for gpu in host.gpus]
    for gpu, code in codes:
        if code is not None:
            detail = gpu.reason if code == "gpu.unusable" else None
            yield code, _message(code, request, detail), _subject(host, gpu)
    if any(code is None for _, code in codes):
        yield "host.devices", _message("host.devices", request), host.view.name


def _of_board(engine: PlacementEngine, request: Request, host: FleetHost) -> Iterator[tuple[str, str, str]]:
    board = engine.fleet.boards[host.board].cut
    models = [gpu.table.geometry.model for gpu in host.gpus]
    closed = closed_to(request, host)
    masks = [host.busy | closed | others for others in other_models(models, request.gpu_models)]
    free = max((board.free(mask) for mask in masks), default=0)
    if not masks or board.slots < request.whole_gpus or f"gpu:{request.whole_gpus}" not in board.shapes:
        code = "profile.unsupported"
    elif free < request.whole_gpus:
        code = "gpu.too_few"
    elif any(board.choices(mask, request.profile) for mask in masks):
        code = _off_sets(request, host, masks, board) or (
            "host.devices" if request.count > 1 else "profile.unsupported"
        )
    else:
        code = "gpu.no_partition"
    detail = _closed(host) if code == "gpu.too_few" else None
    if code == "profile.unsupported":
        yield (*_no_such_set(engine, request, host), host.view.name)
    else:
        yield code, _message(code, request, detail, free=free), host.view.name
    for gpu, model in zip(host.gpus, models, strict=True):
        subject = _subject(host, gpu)
        if request.gpu_models and model not in request.gpu_models:
            continue  # what is wrong with it is no reason: it would not be taken
        if not gpu.usable:
            yield "gpu.unusable", _message("gpu.unusable", request, gpu.reason), subject
        elif gpu.view.reason_not_whole is not None:
            yield "gpu.not_whole", _message("gpu.not_whole", request, gpu.view.reason_not_whole), subject
        elif gpu.view.reason_alone is not None and request.whole_gpus > 1:
            yield "gpu.alone", _message("gpu.alone", request, gpu.view.reason_alone), subject


def _closed(host: FleetHost) -> str | None:
    """How many of its GPUs nothing may be put on, and why the first."""
    reasons = [gpu.reason for gpu in host.gpus if not gpu.usable]
    return f"{len(reasons)} of {len(host.gpus)} may not be used, {reasons[0]}" if reasons else None


def _off_sets(request: Request, host: FleetHost, masks: Iterable[int], board: Cut) -> str | None:
    """Code of why none of the host's sets of GPUs that are free may be given out; None: one may."""
    first = None
    for choice in (choice for mask in masks for choice in board.choices(mask, request.profile)):
        gpus = [gpu for gpu in host.gpus if choice.mask >> gpu.position & 1]
        codes = [code for need in request.needs for code in need.off_set(gpus)]
        if not codes:
            return None
        first = first or codes[0]
    return first


def gpu_reason(request: Request, gpu: Gpu) -> str | None:
    """Code of why one device of the request does not fit the GPU; None: it fits."""
    obstacle = next(gpu_obstacles(request, gpu), None)
    if obstacle == "gpu.other" or (obstacle is not None and has_profile(request, gpu)):
        return obstacle
    demand = demand_of(request)
    options = gpu.table.options(demand)
    if not options:
        mixes = request.cut_kinds == MIXES and gpu.table.geometry.supports(request.profile)
        return "gpu.no_mixed_sizes" if mixes else "profile.unsupported"
    if gpu.whole:
        return "gpu.no_capacity"
    if gpu.table.steps(gpu.state, demand):
        return None
    return _room_reason(gpu.table, gpu, options)


def _room_reason(table: StateTable, gpu: Gpu, options: tuple[tuple[int, str], ...]) -> str:
    here = table.cuts[gpu.cut]
    shape = next((shape for cut, shape in options if cut == gpu.cut), None)
    if shape is None:
        sizes_only = here.kind == "time_sliced" and any(table.cuts[cut].kind == "time_sliced" for cut, _ in options)
        return "gpu.other_size_in_use" if sizes_only else "gpu.other_cut_in_use"
    return "gpu.fragmented" if here.free(table.states[gpu.state][1]) >= here.size(shape) else "gpu.no_capacity"


def _message(code: str, request: Request, detail: str | None = None, *, free: int = 0) -> str:
    if code in CODES:
        return " or ".join(need.message(code) for need in request.needs if code in need.codes)
    text = _MESSAGES[code].format(
        profile=request.profile,
        vcpus=request.vcpus,
        memory=show_size(request.memory_mib * MIB),
        count=free,
        devices=request.count,
    )
    return f"{text}: {detail}" if detail else text
