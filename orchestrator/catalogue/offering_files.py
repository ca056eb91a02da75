# SPDX-License-Identifier: Apache-2.0
"""Reads offering files and says what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from orchestrator.catalogue.catalogue import Catalogue, near_names, shipped
from orchestrator.catalogue.offering_schema import OfferingFileForm, OfferingForm
from orchestrator.catalogue.problems import Problem, invalid
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml, read_yaml
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.mig_profile import MigProfile
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_type import TYPE_NUMBER
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.offerings.rules import OfferingFacts, check_legal

TYPE_NUMBER_HINT: Final = "numbers of types differ from driver to driver: 'vgpuctl profile list' has their names"
"""Where a type was to be named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    offerings: tuple[tuple[Offering, int], ...]
    """With the line where each starts."""
    forms: tuple[OfferingForm, ...] = ()
    problems: tuple[Problem, ...]


def validate_offering_file(path: Path, catalogue: Catalogue | None = None) -> tuple[Problem, ...]:
    """Everything that is wrong with a file, in the order of its lines; empty: it may be used."""
    return _read(path, catalogue or shipped()).problems


def site_offerings(path: Path) -> tuple[tuple[Offering, bool], ...]:
    """Those of a site's file, and of each whether the names it has must be in the tables.

    :raises InvalidInput: ``catalogue.invalid`` with every mistake
    """
    read = _read(path, shipped())
    if read.problems:
        raise invalid(read.problems)
    return tuple((form.to_core("site"), not form.unlisted) for form in read.forms)


def load_offerings(paths: Iterable[Path], catalogue: Catalogue) -> dict[str, Offering]:
    """The offerings of several files by name.

    :raises InvalidInput: ``catalogue.invalid`` with every mistake of every file
    """
    offerings: dict[str, Offering] = {}
    problems: list[Problem] = []
    for path in paths:
        read = _read(path, catalogue)
        problems += read.problems
        for offering, line in read.offerings:
            if offering.name in offerings:
                reason = f"offering {offering.name} exists in another file already"
                problems.append(Problem(file=str(path), line=line, reason=reason))
            offerings[offering.name] = offering
    if problems:
        raise invalid(problems)
    return offerings


def facts_about(offering: Offering, catalogue: Catalogue) -> OfferingFacts:
    """What the tables know of the things an offering names."""
    vgpu_type = catalogue.vgpu_type(offering.vgpu_type) if offering.vgpu_type else None
    names = offering.gpu_models or ((vgpu_type.gpu_model,) if vgpu_type else ())
    models = tuple(model for name in names if (model := catalogue.model(name)) is not None)
    return OfferingFacts(
        vgpu_type=vgpu_type,
        gpu_models=models,
        mig_profiles=_profiles(offering.mig_profile, models, catalogue),
        strangers=tuple(_strangers(offering, catalogue)),
    )


def _strangers(offering: Offering, catalogue: Catalogue) -> Iterator[str]:
    """A model of which the tables list no types, or no profiles, is not judged: its driver tells."""
    known_type = offering.vgpu_type is not None and catalogue.vgpu_type(offering.vgpu_type) is not None
    known_profile = offering.mig_profile is not None and bool(catalogue.profiles_named(offering.mig_profile))
    for name in offering.gpu_models:
        model = catalogue.model(name)
        if model is None:
            continue
        types = {vgpu_type.name for vgpu_type in catalogue.types_of_model(model)}
        profiles = {profile.name for profile in catalogue.profiles_of_model(model)}
        no_type = known_type and (types or model.vgpu_capable is False) and offering.vgpu_type not in types
        no_profile = known_profile and (profiles or not model.mig_capable) and offering.mig_profile not in profiles
        if no_type or no_profile:
            yield name


def _profiles(name: str | None, models: tuple[GpuModel, ...], catalogue: Catalogue) -> tuple[MigProfile, ...]:
    if name is None:
        return ()
    devices = {model.pci_device for model in models}
    return tuple(
        profile
        for profile in catalogue.profiles_named(name)
        if not devices or devices.intersection(profile.pci_devices)
    )


def _read(path: Path, catalogue: Catalogue) -> _Read:
    try:
        document = read_yaml(path)
    except InvalidInput as error:
        return _Read(offerings=(), problems=_problems_of(error))
    forms, problems = _forms(document)
    offerings = {index: form.to_core() for index, form in forms.items()}
    lines = [(offering, document.line_of(("offerings", index))) for index, offering in offerings.items()]
    problems += _repeated(path, lines)
    for index, offering in offerings.items():
        problems += _mistakes(document, index, offering, catalogue, look_up=not forms[index].unlisted)
    problems.sort(key=lambda problem: problem.line)
    return _Read(offerings=tuple(lines), forms=tuple(forms.values()), problems=tuple(problems))


def _forms(document: LinedYaml) -> tuple[dict[int, OfferingForm], list[Problem]]:
    """Entries of the right form, by number, so that a mistake hides none of other entries; and what is wrong."""
    try:
        return dict(enumerate(OfferingFileForm.model_validate(document.data).offerings)), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [
        Problem(file=document.file, line=document.line_of(detail["loc"]), reason=describe(detail, OfferingFileForm))
        for detail in details
    ]
    entries = document.data.get("offerings") if isinstance(document.data, dict) else None
    if not isinstance(entries, list):
        return {}, problems
    wrong = {detail["loc"][1] for detail in details if detail["loc"][0] == "offerings" and len(detail["loc"]) > 1}
    right = {index: OfferingForm.model_validate(entry) for index, entry in enumerate(entries) if index not in wrong}
    return right, problems


def _repeated(path: Path, offerings: Iterable[tuple[Offering, int]]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for offering, line in offerings:
        if offering.name in seen:
            reason = f"offering {offering.name} exists in line {seen[offering.name]} already"
            yield Problem(file=str(path), line=line, reason=reason)
        seen.setdefault(offering.name, line)


def _mistakes(
    document: LinedYaml, index: int, offering: Offering, catalogue: Catalogue, *, look_up: bool
) -> Iterator[Problem]:
    for field, reason in mistakes_in(offering, catalogue, look_up=look_up):
        yield problem_at(document, index, field, f"{offering.name}: {reason}")


def problem_at(document: LinedYaml, index: int, field: str, reason: str) -> Problem:
    """At a field (``parameters.uvm``) of the offering with that number."""
    return Problem(file=document.file, line=document.line_of(("offerings", index, *field.split("."))), reason=reason)


def mistakes_in(offering: Offering, catalogue: Catalogue, *, look_up: bool) -> Iterator[tuple[str, str]]:
    """(field, reason) of every name that no table has and every combination that a rule forbids.

    ``look_up``: whether names are to be in the tables.
    """
    if look_up:
        for field, name, known in _unknown_names(offering, catalogue):
            near = () if (number := TYPE_NUMBER.fullmatch(name)) else near_names(name, known)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; {TYPE_NUMBER_HINT}" if number else ""
            yield field, f"{field} {name!a} is in no table{hint}"
    for violation in check_legal(offering, facts_about(offering, catalogue)):
        yield violation.field, f"{violation.message} [{violation.rule}]"


def _unknown_names(offering: Offering, catalogue: Catalogue) -> Iterator[tuple[str, str, Iterable[str]]]:
    if offering.vgpu_type and catalogue.vgpu_type(offering.vgpu_type) is None:
        yield "vgpu_type", offering.vgpu_type, catalogue.type_names
    if offering.mig_profile and not catalogue.profiles_named(offering.mig_profile):
        yield "mig_profile", offering.mig_profile, catalogue.profile_names
    for name in offering.gpu_models:
        if catalogue.model(name) is None:
            yield "gpu_models", name, [model.name for model in catalogue.gpu_models]


def _problems_of(error: InvalidInput) -> tuple[Problem, ...]:
    problems = []
    for reason in error.reasons:
        file, _, line = reason.subjects[0].rpartition(":")
        problems.append(Problem(file=file, line=int(line), reason=reason.message))
    return tuple(problems)
