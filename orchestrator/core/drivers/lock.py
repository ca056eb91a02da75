# SPDX-License-Identifier: Apache-2.0
"""Which drivers a site means to have: versions for all hosts, others for groups of them, and what goes with what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.drivers.bundle import TAKEN, BundleKind, DriverBundle
from orchestrator.core.drivers.matrix import DriverMatrix, toolkit_release, version_key
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.labels import Labels, parse_selector, selects

Component = Literal["host_driver", "guest_driver", "cuda", "cudnn", "container_toolkit", "fabric_manager", "dcgm"]

KINDS: Final[dict[Component, frozenset[BundleKind]]] = {
    "host_driver": frozenset({"vgpu_host", "datacenter"}),
    "guest_driver": frozenset({"vgpu_guest", "datacenter"}),
    "cuda": frozenset({"cuda_toolkit"}),
    "cudnn": frozenset({"cudnn"}),
    "container_toolkit": frozenset({"container_toolkit"}),
    "fabric_manager": frozenset({"fabric_manager"}),
    "dcgm": frozenset({"dcgm"}),
}
"""What a bundle of a component may be."""
DRIVER_COMPONENTS: Final[frozenset[Component]] = frozenset({"host_driver", "guest_driver", "fabric_manager"})
SITE: Final = "site"
"""The name of what holds for hosts of no group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Locked:
    """One version. ``sha256``: of the bundle that it must be installed from; None: any of that version."""

    component: Component
    """Which part is locked."""
    version: str
    """Its version."""
    sha256: str | None = None
    """Of the bundle that it is installed from; None: any of that version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockGroup:
    """Hosts that a selector of labels picks, and what is other for them than for the site."""

    name: str
    selector: str
    locked: tuple[Locked, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverLock:
    """``site`` holds where no group says otherwise; of groups the first that picks a host counts."""

    site: tuple[Locked, ...]
    groups: tuple[LockGroup, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLock:
    """What one host is to have. ``group``: whose word it is."""

    group: str
    locked: Mapping[Component, Locked]

    def version(self, component: Component) -> str | None:
        one = self.locked.get(component)
        return None if one is None else one.version


def digests_of(lock: DriverLock) -> frozenset[str]:
    """Of the bundles that it names."""
    parts = (lock.site, *(group.locked for group in lock.groups))
    return frozenset(part.sha256 for locked in parts for part in locked if part.sha256 is not None)


def lock_of(lock: DriverLock, labels: Labels) -> HostLock:
    """What a host with these labels is to have."""
    site = {part.component: part for part in lock.site}
    for group in lock.groups:
        if selects(parse_selector(group.selector), labels):
            return HostLock(group=group.name, locked={**site, **{part.component: part for part in group.locked}})
    return HostLock(group=SITE, locked=site)


def check_lock(lock: DriverLock, matrix: DriverMatrix, bundles: Iterable[DriverBundle]) -> None:
    """Whether it can be: versions are versions, what goes together does, and named bundles are there.

    :raises InvalidInput: ``lock.invalid`` with a reason for each mistake
    """
    known = {bundle.sha256: bundle for bundle in bundles}
    site = {part.component: part for part in lock.site}
    wholes = {SITE: site, **{group.name: {**site, **_by_component(group)} for group in lock.groups}}
    reasons: list[Reason] = []
    for name, locked in wholes.items():
        mistakes = list(_bad_versions(locked)) or [*_mismatches(locked, matrix), *_bad_digests(locked, known)]
        reasons += [Reason(code="lock.invalid", message=text, subjects=(name,)) for text in mistakes]
    reasons += _hidden(lock.groups)
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise InvalidInput(
            "lock.invalid",
            f"{reasons[0].subjects[0]}: {reasons[0].message}{more}",
            hint="nothing was changed; docs/howto/lock-drivers.md says what goes together",
            reasons=tuple(reasons[1:] and reasons),
        )


def _hidden(groups: Iterable[LockGroup]) -> Iterator[Reason]:
    """Groups that never count: one before them picks the same hosts."""
    first: dict[frozenset[object], str] = {}
    for group in groups:
        before = first.setdefault(frozenset(parse_selector(group.selector)), group.name)
        if before != group.name:
            message = f"group {before} picks the same hosts and comes first"
            yield Reason(code="lock.invalid", message=message, subjects=(group.name,))


def _by_component(group: LockGroup) -> dict[Component, Locked]:
    return {part.component: part for part in group.locked}


def _bad_versions(locked: Mapping[Component, Locked]) -> Iterator[str]:
    for part in locked.values():
        if part.component in DRIVER_COMPONENTS:
            try:
                version_key(part.version)
            except InvalidInput as error:
                yield f"{part.component}: {error.message}"
        if part.component == "cuda" and toolkit_release(part.version) is None:
            yield f"cuda: {part.version!a} is no version of a toolkit: write it like 13.0.2 or 13.0 Update 2"


def _mismatches(locked: Mapping[Component, Locked], matrix: DriverMatrix) -> Iterator[str]:
    """What the tables forbid. What they do not know they do not forbid."""
    host, guest, cuda, fabric = (locked.get(name) for name in ("host_driver", "guest_driver", "cuda", "fabric_manager"))
    if host is not None and guest is not None:
        verdict = matrix.guest_verdict(host_driver=host.version, guest_driver=guest.version)
        if verdict.forbidden:
            yield f"guest_driver {guest.version} does not go with host_driver {host.version}: {verdict.reason}"
    if cuda is not None and (why := _no_toolkit(matrix, cuda.version)):
        yield why
    elif cuda is not None and guest is not None and not _runs(matrix, cuda, guest):
        yield f"cuda {cuda.version} needs a newer driver than guest_driver {guest.version}"
    if fabric is not None and (host is None or fabric.version != host.version):
        wanted = "no host_driver" if host is None else f"host_driver {host.version}"
        yield f"fabric_manager {fabric.version} must be of the driver's own version, and there is {wanted}"


def _no_toolkit(matrix: DriverMatrix, version: str) -> str | None:
    """Why this names none of several CUDA toolkits of one release that the tables know."""
    near = [toolkit.name for toolkit in matrix.toolkits if toolkit.name.partition(" ")[0] == version.partition(" ")[0]]
    if version in near or not near:
        return None
    return f"cuda {version!a} is no toolkit of the tables; there are {', '.join(near)}"


def _runs(matrix: DriverMatrix, cuda: Locked, guest: Locked) -> bool:
    return matrix.cuda_supported(driver=guest.version, toolkit=cuda.version) is not False


def _bad_digests(locked: Mapping[Component, Locked], known: Mapping[str, DriverBundle]) -> Iterator[str]:
    for part in locked.values():
        if part.sha256 is None:
            continue
        bundle = known.get(part.sha256)
        if bundle is None:
            yield f"{part.component}: no driver bundle has the digest {part.sha256[:12]}"
        elif bundle.content.kind not in KINDS[part.component] or bundle.content.version != part.version:
            content = f"{bundle.content.kind} {bundle.content.version}"
            yield f"{part.component} {part.version}: bundle {part.sha256[:12]} is {content}"
        elif bundle.content.architecture not in TAKEN:
            yield f"{part.component} {part.version}: bundle {part.sha256[:12]} is for {bundle.content.architecture}"
