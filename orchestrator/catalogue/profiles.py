# SPDX-License-Identifier: Apache-2.0
"""What a name after ``--profile`` means: an offering, a vGPU type, a MIG profile or ``gpu:N``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from orchestrator.catalogue.catalogue import Catalogue, near_names, shipped
from orchestrator.catalogue.offering_files import TYPE_NUMBER_HINT, load_offerings
from orchestrator.catalogue.tables import profiles_directory
from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.mig_profile import is_mig_profile_name
from orchestrator.core.gpu.vgpu_type import TYPE_NUMBER, is_vgpu_type_name, parse_vgpu_type_name
from orchestrator.core.offerings.offering import Offering, VmSize, vm_size
from orchestrator.core.offerings.rules import MAX_GPUS

_WHOLE_GPUS = re.compile(r"gpu:(?P<count>[1-9][0-9]?)", re.ASCII)
_MAKER = re.compile(r"(?:nvidia\.com/)?(?:(?:nvidia|grid|tesla|mig)-)*", re.ASCII)


class Profiles:
    """All names that can be asked for."""

    def __init__(self, catalogue: Catalogue, offerings: Mapping[str, Offering]) -> None:
        self.catalogue = catalogue
        self.offerings = offerings

    def resolve(self, name: str, *, host_types: Collection[str] = ()) -> Offering:
        """The offering that ``name`` stands for.

        ``host_types`` are vGPU types that hosts offer now: a type that only a driver knows works as well.

        :raises NotFound: ``profile.unknown`` with near names in the hint
        """
        if name in self.offerings:
            return self.offerings[name]
        vgpu_type = self.catalogue.vgpu_type(name)
        if vgpu_type is not None:
            return Offering(name=name, origin="vgpu_type", kind=vgpu_type.mode, vgpu_type=name, migratable=True)
        if name in host_types:
            mode = parse_vgpu_type_name(name).mode if is_vgpu_type_name(name) else "time_sliced"
            return Offering(name=name, origin="vgpu_type", kind=mode, vgpu_type=name, migratable=True)
        if is_mig_profile_name(name) and self.catalogue.profiles_named(name):
            return Offering(name=name, origin="mig_profile", kind="mig", mig_profile=name, migratable=True)
        match = _WHOLE_GPUS.fullmatch(name)
        if match is not None and int(match["count"]) <= MAX_GPUS:
            return Offering(name=name, origin="gpu_count", kind="passthrough", gpu_count=int(match["count"]))
        raise self._unknown(name, host_types)

    def framebuffer_mib(self, offering: Offering) -> int | None:
        """Of one of its devices; None: nothing known names it. Of several GPU models the smallest."""
        if offering.vgpu_type is not None:
            vgpu_type = self.catalogue.vgpu_type(offering.vgpu_type)
            if vgpu_type is not None:
                return vgpu_type.framebuffer_mib
            named = is_vgpu_type_name(offering.vgpu_type)
            return parse_vgpu_type_name(offering.vgpu_type).framebuffer_mib if named else None
        if offering.mig_profile is not None:
            profiles = self.catalogue.profiles_named(offering.mig_profile)
            return min((profile.memory_mib for profile in profiles if profile.memory_mib is not None), default=None)
        models = (self.catalogue.model(name) for name in offering.gpu_models)
        sizes = (model.memory_gib for model in models if model is not None and model.memory_gib is not None)
        return min((size * 1024 for size in sizes), default=None)

    def models(self, offering: Offering) -> tuple[str, ...]:
        """GPU models that it names, or that the tables have its vGPU type of; empty: no model is named."""
        vgpu_type = None if offering.vgpu_type is None else self.catalogue.vgpu_type(offering.vgpu_type)
        return offering.gpu_models or (() if vgpu_type is None else (vgpu_type.gpu_model,))

    def size(self, offering: Offering) -> VmSize:
        """Of its VMs that ask for none."""
        return vm_size(offering, self.framebuffer_mib(offering))

    def with_site(self, offerings: Iterable[Offering]) -> Profiles:
        """With those that a site added. They win: VMs were made under them before a new release ships that name."""
        return Profiles(self.catalogue, {**self.offerings, **{offering.name: offering for offering in offerings}})

    def taken(self, offering: Offering, *, host_types: Collection[str] = ()) -> str | None:
        """What else a site's offering of that name would be taken for; None: nothing.

        A type may lend its name without ``NVIDIA`` in front (``rtx6000-ada-4q``) to an offering that gives it.
        """
        if offering.name in self.offerings:
            return f"{offering.name} comes with vgpuctl"
        given = _bare(offering.vgpu_type or "")
        for known in (*host_types, *self.catalogue.type_names):
            if offering.name == known.casefold() or offering.name == _bare(known) != given:
                return f"{offering.name} reads as the vGPU type {known}"
        return None

    def _unknown(self, name: str, host_types: Collection[str]) -> NotFound:
        known = [*self.offerings, *host_types, *self.catalogue.type_names, *self.catalogue.profile_names]
        meant = _spelling(name[:80])
        near = tuple(dict.fromkeys(other for other in known if _spelling(other) == meant)) or near_names(name, known)
        if TYPE_NUMBER.fullmatch(name):
            hint = TYPE_NUMBER_HINT
        elif name.startswith("gpu:"):
            hint = f"write gpu:1 to gpu:{MAX_GPUS} for whole GPUs"
        elif near:
            hint = f"did you mean {', '.join(near)}?"
        else:
            hint = "'vgpuctl profile list' shows the offerings; NVIDIA's names and gpu:N work too"
        return NotFound("profile.unknown", f"no profile is called {name[:80]!a}", hint=hint)


def _spelling(name: str) -> str:
    """What is left of a name however tools and manuals write it: ``t4-4q`` of ``grid_t4-4q``, ``NVIDIA T4-4Q`` and
    ``GRID T4-4Q``; ``1g.10gb`` of ``MIG 1g.10gb``, ``1g.10gb+me`` of ``nvidia.com/mig-1g.10gb.me``."""
    plain = re.sub(r"[\s_-]+", "-", name.strip().casefold())
    return re.sub(r"gb\.me\b", "gb+me", _MAKER.sub("", plain, count=1))


def _bare(type_name: str) -> str:
    """``NVIDIA RTX6000-Ada-4Q`` → ``rtx6000-ada-4q``."""
    return type_name.partition(" ")[2].casefold()


@lru_cache(maxsize=1)
def shipped_profiles() -> Profiles:
    """The profiles that come with vgpuctl, read once.

    :raises InvalidInput: ``catalogue.invalid``
    """
    catalogue = shipped()
    return Profiles(catalogue, load_offerings(sorted((profiles_directory() / "offerings").glob("*.yaml")), catalogue))
