# SPDX-License-Identifier: Apache-2.0
"""``drivers.lock.yaml``: the form of the file, and of what the API takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.offering_schema import SchemaVersion
from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml
from orchestrator.core.drivers.lock import SITE, Component, DriverLock, Locked, LockGroup
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.labels import MAX_SELECTOR, parse_selector
from orchestrator.core.names import check_name

MAX_GROUPS: Final = 100
_BARE: Final = "constrained-str"
"""What pydantic calls a :data:`Version` that stands alone."""

Version = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+~ -]{0,40}$")]


class LockedForm(StrictForm):
    """A version and the bundle that it is installed from."""

    version: Version
    """Its version."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the file, 64 hexadecimal digits."""


LockedValue = Version | LockedForm


class ComponentsForm(StrictForm):
    """Versions, each with or without its bundle's digest. What is left out is not locked."""

    host_driver: LockedValue | None = None
    """NVIDIA vGPU driver of hosts."""
    guest_driver: LockedValue | None = None
    """NVIDIA driver in guests."""
    cuda: LockedValue | None = None
    """CUDA, in guests."""
    cudnn: LockedValue | None = None
    """cuDNN, in guests."""
    container_toolkit: LockedValue | None = None
    """NVIDIA Container Toolkit, in guests."""
    fabric_manager: LockedValue | None = None
    """NVIDIA Fabric Manager."""
    dcgm: LockedValue | None = None
    """Data Center GPU Manager."""

    def locked(self) -> tuple[Locked, ...]:
        """Those that are named."""
        values: Mapping[Component, LockedValue | None] = {
            "host_driver": self.host_driver,
            "guest_driver": self.guest_driver,
            "cuda": self.cuda,
            "cudnn": self.cudnn,
            "container_toolkit": self.container_toolkit,
            "fabric_manager": self.fabric_manager,
            "dcgm": self.dcgm,
        }
        return tuple(
            Locked(component=component, version=value)
            if isinstance(value, str)
            else Locked(component=component, version=value.version, sha256=value.sha256)
            for component, value in values.items()
            if value is not None
        )


class GroupForm(ComponentsForm):
    """A group of hosts, by their labels."""

    labels: str = Field(min_length=1, max_length=MAX_SELECTOR)
    """Selector: ring=canary,!spare."""


class DriverLockForm(
    StrictForm,
    example={
        "schema_version": 1,
        "site": {"host_driver": "580.82.02", "guest_driver": "580.82.07"},
        "groups": {"canary": {"labels": "ring=canary", "host_driver": "580.95.02"}},
    },
):
    """The whole file."""

    schema_version: SchemaVersion
    """Of the form of this document."""
    site: ComponentsForm = ComponentsForm()
    """For all hosts; ``{}`` locks nothing of them."""
    groups: dict[str, GroupForm] = Field(default={}, max_length=MAX_GROUPS)
    """Hosts that differ from the site; the first that picks a host counts."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set & {"site", "groups"}:
            raise ValueError("it names neither site nor groups: 'site: {}' locks nothing")
        return self

    def to_core(self) -> DriverLock:
        """:raises InvalidInput: ``lock.name_invalid``, ``lock.name_taken``, ``label.selector_invalid``"""
        for name, group in self.groups.items():
            if check_name(name, what="lock") == SITE:
                raise InvalidInput("lock.name_taken", "no group is called site", hint="choose another name")
            parse_selector(group.labels)
        return DriverLock(
            site=self.site.locked(),
            groups=tuple(
                LockGroup(name=name, selector=group.labels, locked=group.locked())
                for name, group in self.groups.items()
            ),
        )


def read_lock(path: Path, text: str) -> DriverLockForm:
    """:raises InvalidInput: ``lock.invalid`` with line and reason of every mistake"""
    try:
        document = LinedYaml(str(path), text)
    except InvalidInput as error:
        raise _invalid([f"{', '.join(reason.subjects)}: {reason.message}" for reason in error.reasons]) from error
    if document.data is None:
        raise _invalid([f"{document.file}: it is empty"])
    if not isinstance(document.data, Mapping):
        raise _invalid([f"{document.file}:1: {ascii(document.data)[:60]} is no lock: it begins with schema_version: 1"])
    try:
        return DriverLockForm.model_validate(document.data)
    except ValidationError as error:
        problems = [
            Problem(file=document.file, line=document.line_of(detail["loc"]), reason=_reason(detail))
            for detail in error.errors(include_url=False)
            if not _is_of_the_other_form(detail)
        ]
        raise _invalid(list(map(str, problems))) from error


def _is_of_the_other_form(detail: ErrorDetails) -> bool:
    """pydantic tells of each form of a version that it is not the other one."""
    form, is_mapping = _form_at(detail["loc"]), isinstance(detail["input"], Mapping)
    if form is None:
        return False
    return is_mapping if detail["loc"][form] == _BARE else detail["loc"][form:] == (LockedForm.__name__,)


def _form_at(loc: tuple[str | int, ...]) -> int | None:
    """Where a place has the name of a form, which stands behind the name of a component."""
    forms = (_BARE, LockedForm.__name__)
    positions = (
        at for at, part in enumerate(loc) if part in forms and at and loc[at - 1] in ComponentsForm.model_fields
    )
    return next(positions, None)


def _reason(detail: ErrorDetails) -> str:
    form = _form_at(detail["loc"])
    where = tuple(part for at, part in enumerate(detail["loc"]) if at != form)
    field, value = ".".join(map(str, where)), detail["input"]
    shown = ascii(str(value) if isinstance(value, date) else value)[:60]
    if detail["type"] == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{field}: YAML takes {shown} for a number: put it in quotes"
    if detail["type"] in {"string_type", "string_pattern_mismatch"} and where[-1] == "sha256":
        return f"{field}: {shown} is no SHA-256"
    if detail["type"] in {"string_type", "string_pattern_mismatch"} and where[-1] != "labels":
        return f"{field}: {shown} is no version"
    return describe({**detail, "loc": where}, DriverLockForm)


def _invalid(mistakes: list[str]) -> InvalidInput:
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    reasons = tuple(Reason(code="lock.invalid", message=mistake) for mistake in mistakes)
    return InvalidInput(
        "lock.invalid",
        f"{mistakes[0]}{more}",
        hint="docs/howto/lock-drivers.md shows such a file",
        reasons=reasons if len(mistakes) > 1 else (),
    )
