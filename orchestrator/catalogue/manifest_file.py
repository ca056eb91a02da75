# SPDX-License-Identifier: Apache-2.0
"""Reads files for ``apply``; manifest_forms.py has what they may say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.catalogue.manifest_forms import ManifestForm
from orchestrator.catalogue.offering_files import mistakes_in, problem_at
from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.labels import WantedAbout
from orchestrator.core.manifest import Kind, Manifest, WantedOffering

_Read = tuple[LinedYaml, ManifestForm]


def read_manifest(path: Path, text: str) -> Manifest:
    """One file's text as wanted things. Raises as :func:`read_manifests` does."""
    return read_manifests([(path, text)])


def read_manifests(files: Sequence[tuple[Path, str]]) -> Manifest:
    """Files' texts as the wanted things of all of them together; what is in one may name what is in another.

    :raises InvalidInput: ``manifest.invalid`` with file, line and reason of every mistake; ``manifest.labels``: they
        have several labels
    """
    read = [_read(path, text) for path, text in files]
    mistakes = [
        *_given_twice(read),
        *(mistake for document, form in read for mistake in _impossible_offerings(document, form)),
    ]
    if mistakes:
        raise _invalid(mistakes)
    forms = [form for _, form in read]
    offerings = [offering for form in forms for offering in form.offerings]
    profiles = shipped_profiles().with_site(offering.to_core("site") for offering in offerings)
    return Manifest(
        label=_one_label(read),
        tenants=tuple(tenant.to_core(profiles) for form in forms for tenant in form.tenants),
        offerings=tuple(
            WantedOffering(offering=offering.to_core("site"), look_up=not offering.unlisted) for offering in offerings
        ),
        networks=tuple(network.to_core() for form in forms for network in form.networks),
        images=tuple(image.to_core() for form in forms for image in form.images),
        volumes=tuple(volume.to_core() for form in forms for volume in form.volumes),
        vms=tuple(vm.to_core() for form in forms for vm in form.vms),
        groups=tuple(group.to_core() for form in forms for group in form.security_groups),
        floating=tuple(floating.to_core() for form in forms for floating in form.floating_addresses),
        abouts={key: about for form in forms for key, about in _abouts(form)},
    )


def _read(path: Path, text: str) -> _Read:
    try:
        document = LinedYaml(str(path), text)
    except InvalidInput as error:
        raise _invalid([_problem_of(reason) for reason in error.reasons]) from error
    try:
        return document, ManifestForm.model_validate(document.data)
    except ValidationError as error:
        raise _invalid([_problem(document, detail) for detail in error.errors(include_url=False)]) from error


def _one_label(read: Sequence[_Read]) -> str | None:
    """A label says which VMs are pruned: two files with different ones are two sites."""
    (first, form), *others = read
    for document, other in others:
        if other.label != form.label:
            labels = [
                f"{document_read.file} has {label or 'none'}"
                for document_read, label in ((first, form.label), (document, other.label))
            ]
            raise InvalidInput(
                "manifest.labels",
                f"the files have different labels: {', '.join(labels)}",
                hint="apply one after the other",
            )
    return form.label


def _problem(document: LinedYaml, detail: ErrorDetails) -> Problem:
    """A secret never comes back in a message: the value of ``user_data`` is left out."""
    secret = "user_data" in detail["loc"]
    shown: ErrorDetails = {**detail, "input": "..."} if secret else detail
    return Problem(file=document.file, line=document.line_of(detail["loc"]), reason=describe(shown, ManifestForm))


def _problem_of(reason: Reason) -> Problem:
    file, _, line = reason.subjects[0].rpartition(":")
    return Problem(file=file, line=int(line), reason=reason.message)


def _impossible_offerings(document: LinedYaml, form: ManifestForm) -> Iterator[Problem]:
    for index, entry in enumerate(form.offerings):
        offering, shipped = entry.to_core("site"), shipped_profiles()
        mistakes = [*mistakes_in(offering, shipped.catalogue, look_up=not entry.unlisted)]
        taken = shipped.taken(offering)
        if taken is not None:
            mistakes.append(("name", f"the name is taken: {taken}"))
        for field, reason in mistakes:
            yield problem_at(document, index, field, f"{offering.name}: {reason}")


def _abouts(form: ManifestForm) -> Iterator[tuple[tuple[Kind, str], WantedAbout]]:
    yield from ((("tenant", tenant.name), tenant.about()) for tenant in form.tenants)
    yield from ((("network", network.to_core().key), network.about()) for network in form.networks)
    yield from ((("security_group", group.to_core().key), group.about()) for group in form.security_groups)
    yield from ((("image", image.name), image.about()) for image in form.images)
    yield from ((("volume", volume.to_core().key), volume.about()) for volume in form.volumes)


def _keys(form: ManifestForm) -> dict[str, list[str]]:
    return {
        "tenants": [tenant.name for tenant in form.tenants],
        "offerings": [offering.name for offering in form.offerings],
        "networks": [network.to_core().key for network in form.networks],
        "security_groups": [group.to_core().key for group in form.security_groups],
        "floating_addresses": [floating.to_core().key for floating in form.floating_addresses],
        "images": [image.name for image in form.images],
        "volumes": [volume.to_core().key for volume in form.volumes],
        "vms": [f"{vm.tenant}/{vm.name}" for vm in form.vms],
    }


def _given_twice(read: Sequence[_Read]) -> list[Problem]:
    problems, seen = [], set[tuple[str, str]]()
    for document, form in read:
        for noun, names in _keys(form).items():
            for index, key in enumerate(names):
                if (noun, key) in seen:
                    line = document.line_of((noun, index))
                    problems.append(Problem(file=document.file, line=line, reason=f"{noun}: {key} is given twice"))
                seen.add((noun, key))
    return problems


def _invalid(problems: list[Problem]) -> InvalidInput:
    ordered = sorted(problems, key=lambda problem: (problem.file, problem.line))
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    return InvalidInput(
        "manifest.invalid",
        f"{ordered[0]}{more}",
        hint="correct the file; nothing was changed",
        reasons=tuple(
            Reason(code="manifest.invalid", message=problem.reason, subjects=(f"{problem.file}:{problem.line}",))
            for problem in ordered
        )
        if more
        else (),
    )
