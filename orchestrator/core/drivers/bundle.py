# SPDX-License-Identifier: Apache-2.0
"""Files that drivers are installed from: the operator's own, never shipped by us. What they are is read from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.drivers.matrix import branch_number, version_key
from orchestrator.core.errors import InvalidInput

BundleKind = Literal[
    "vgpu_host", "vgpu_guest", "datacenter", "fabric_manager", "dcgm", "container_toolkit", "cuda_toolkit", "cudnn"
]
"""``vgpu_host``: NVIDIA's vGPU manager; ``vgpu_guest``: the driver inside of VMs; ``datacenter``: for whole GPUs."""
BundleFormat = Literal["run", "deb", "rpm"]

DRIVERS: Final[frozenset[BundleKind]] = frozenset({"vgpu_host", "vgpu_guest", "datacenter", "fabric_manager"})
"""Their versions are driver versions, of a branch."""

_RUN_TARGET: Final = re.compile(
    r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>[0-9.]{5,20})(?P<flavour>-vgpu-kvm(?:-aie)?|-grid|)", re.ASCII
)
_RUN_KINDS: Final[dict[str, BundleKind]] = {
    "-vgpu-kvm": "vgpu_host", "-vgpu-kvm-aie": "vgpu_host", "-grid": "vgpu_guest", "": "datacenter",
}  # fmt: skip
_PACKAGES: Final[tuple[tuple[re.Pattern[str], BundleKind], ...]] = (
    (re.compile(r"nvidia-vgpu-(?!guest)[a-z0-9.+-]+"), "vgpu_host"),
    (re.compile(r"nvidia-linux-grid(?:-[0-9]+)?"), "vgpu_guest"),
    (re.compile(r"(?:nvidia-driver|nvidia-open|cuda-drivers)(?:-[a-z0-9.]+)*"), "datacenter"),
    (re.compile(r"nvidia-fabric-?manager(?:-[0-9]+)?"), "fabric_manager"),
    (re.compile(r"datacenter-gpu-manager(?:-[a-z0-9.]+)*"), "dcgm"),
    (re.compile(r"nvidia-container-toolkit"), "container_toolkit"),
    (re.compile(r"cuda-toolkit(?:-[0-9]+)*"), "cuda_toolkit"),
    (re.compile(r"(?:lib)?cudnn[0-9]*(?:-cuda-[0-9-]+)?"), "cudnn"),
)
"""Names of packages as NVIDIA writes them, in lower case."""
_ARCHITECTURES: Final = {
    "x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64", "noarch": "any", "all": "any",
}  # fmt: skip
TAKEN: Final = frozenset({"x86_64", "any"})
"""Architectures of what goes onto hosts and into guests: definitions of VMs are of x86 machines alone."""
_UPSTREAM: Final = re.compile(r"(?:[0-9]+:)?(?P<upstream>[0-9][0-9A-Za-z.+~]{0,40}?)(?:-[0-9A-Za-z.+~]+)?", re.ASCII)
_DRIVER_VERSION: Final = re.compile(r"[0-9]{3}\.[0-9]{1,4}(?:\.[0-9]{1,4})?", re.ASCII)
_KNOWN: Final = "give a .run, .deb or .rpm of NVIDIA's for x86_64 or aarch64, as it was downloaded"


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleContent:
    """What a file says of itself."""

    kind: BundleKind
    """Which kind of thing this is."""
    package: str
    """The name that the file gives itself."""
    version: str
    """Without what a distribution adds: ``580.65.05``."""
    architecture: str
    """``x86_64``, ``aarch64`` or ``any``."""
    format: BundleFormat
    """How the file is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBundle:
    """A file whose digest and signature were checked before it was looked into."""

    sha256: str
    """Of the file, 64 hexadecimal digits."""
    content: BundleContent
    size_bytes: int
    """Of the file."""
    key_id: str
    """Of the key that signed it: 16 hexadecimal digits."""
    comment: str
    """What the signer wrote under the signature; of OpenPGP whose key it is."""
    created_at: float
    """When it was made."""

    @property
    def branch(self) -> str | None:
        """``R580``; None for what is not of a driver branch."""
        return f"R{branch_number(self.content.version)}" if self.content.kind in DRIVERS else None


@dataclass(frozen=True, kw_only=True)
class NewBundle:
    """A driver that is to be taken."""

    source: str | Iterator[bytes]
    """An absolute path on the server's machine, or the content itself in chunks."""
    signature: str | None
    """OpenPGP, armored, as written beside it; None: it is inside of the deb or rpm."""
    key: str
    """The signer's public key of OpenPGP, armored."""
    sha256: str | None = None
    """64 hexadecimal digits: what the content must hash to."""
    size_bytes: int | None = None
    """Of the content, where it is known before."""


def content_of_run(target: str) -> BundleContent:
    """``target``: the directory that a ``.run`` file unpacks into.

    :raises InvalidInput: ``bundle.unknown_content``, ``bundle.version_invalid``
    """
    match = _RUN_TARGET.fullmatch(target)
    if match is None:
        raise unknown_content(f"the archive {ascii(target)[:80]} is no driver that is known")
    kind = _RUN_KINDS[match["flavour"]]
    return BundleContent(
        kind=kind, package=target, version=_checked(kind, match["version"]), architecture=match["arch"], format="run"
    )


def content_of_package(
    name: str, version: str, architecture: str, package_format: BundleFormat, release: str = ""
) -> BundleContent:
    """Of a distribution's package. ``release``: of an rpm. NVIDIA-vGPU-rhel-9.4-550.90.05.x86_64.rpm has the system's
    version as its version and the driver's as its release.

    :raises InvalidInput: ``bundle.unknown_content``, ``bundle.version_invalid``, ``bundle.architecture``
    """
    kind = next((kind for pattern, kind in _PACKAGES if pattern.fullmatch(name.lower())), None)
    if kind is None:
        raise unknown_content(f"the package {ascii(name)[:80]} is no driver and no part of one")
    known = _ARCHITECTURES.get(architecture)
    if known is None:
        raise InvalidInput("bundle.architecture", f"{ascii(name)[:80]} is for {ascii(architecture)[:20]}", hint=_KNOWN)
    upstream = _UPSTREAM.fullmatch(release if kind in DRIVERS and _DRIVER_VERSION.fullmatch(release) else version)
    if upstream is None:
        raise _no_version(version)
    return BundleContent(
        kind=kind,
        package=name,
        version=_checked(kind, upstream["upstream"]),
        architecture=known,
        format=package_format,
    )


def _checked(kind: BundleKind, version: str) -> str:
    if kind in DRIVERS:
        try:
            version_key(version)
        except InvalidInput as error:
            raise _no_version(version) from error
    return version


def _no_version(version: str) -> InvalidInput:
    return InvalidInput("bundle.version_invalid", f"the file gives {ascii(version)[:60]} as its version", hint=_KNOWN)


def unknown_content(why: str) -> InvalidInput:
    """The file is not one that drivers are installed from."""
    return InvalidInput("bundle.unknown_content", why, hint=_KNOWN)
