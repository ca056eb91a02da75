# SPDX-License-Identifier: Apache-2.0
"""Labels that people put on VMs and hosts, and the selectors that pick by them (``rack=3,!spare``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput

Labels = tuple[tuple[str, str], ...]
"""(key, value), by key."""

KEPT_FOR: Final = "kept-for"
"""A host's label with the name of a tenant: nobody else is placed there."""
MAX_LABELS: Final = 32
MAX_SELECTOR: Final = 1024
MAX_DESCRIPTION: Final = 500
MAX_TOGETHER: Final = 4096
"""Characters of all labels of one thing, as ``key=value``: a change of them is one record of the audit."""
_PREFIX: Final = "[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/"
KEY_PATTERN: Final = (
    f"(?:{_PREFIX})?[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?|[a-z0-9](?:[a-z0-9._/-]{{0,61}}[a-z0-9])?"
)
"""As of Kubernetes, ``example.org/Name``; and with more slashes, as they could be before."""
VALUE_PATTERN: Final = "[A-Za-z0-9._-]{0,63}"
_KEY: Final = re.compile(KEY_PATTERN, re.ASCII)
_VALUE: Final = re.compile(VALUE_PATTERN, re.ASCII)
_TERM: Final = re.compile(rf"(?P<key>{KEY_PATTERN})(?:(?P<sign>!?=)(?P<value>{VALUE_PATTERN}))?", re.ASCII)


@dataclass(frozen=True)
class Term:
    """One condition of a selector. ``value`` None: only whether the key is there counts."""

    key: str
    value: str | None
    negated: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        matches = self.key in labels if self.value is None else labels.get(self.key) == self.value
        return matches != self.negated


@dataclass(frozen=True, kw_only=True)
class About:
    """What people say of a thing; it says nothing about what the thing is."""

    description: str = ""
    labels: Labels = ()

    def changed(self, description: str | None, labels: Mapping[str, str | None]) -> About:
        """None as a description: the one there is stays. :raises InvalidInput: ``label.invalid``, ``label.too_many``"""
        kept = self.description if description is None else description
        return About(description=kept, labels=changed_labels(self.labels, labels))


NOTHING_SAID: Final = About()


@dataclass(frozen=True, kw_only=True)
class WantedAbout:
    """What a file says of a thing. None as a description, and labels that it does not name: as they are."""

    description: str | None = None
    labels: Labels = ()

    def differing(self, current: About) -> Iterator[tuple[str, str, str]]:
        """(field of the file, what is there, what is wanted) of each that is otherwise."""
        if self.description is not None and self.description != current.description:
            yield "description", current.description, self.description
        known = dict(current.labels)
        for key, value in self.labels:
            if known.get(key) != value:
                yield f"labels.{key}", known.get(key, "none"), value


def show_changes(description: str | None, labels: Mapping[str, str | None]) -> str:
    changes = [f"{key}={value}" if value is not None else f"no {key}" for key, value in labels.items()]
    return ", ".join([*changes, *([] if description is None else [f"description {description!r}"])])


Selector = tuple[Term, ...]
"""All of them must hold."""


def check_labels(labels: Mapping[str, str]) -> Labels:
    """In order, when all are legal.

    :raises InvalidInput: ``label.invalid``, ``label.too_many``
    """
    if len(labels) > MAX_LABELS:
        raise InvalidInput("label.too_many", f"{len(labels)} labels are too many", hint=f"at most {MAX_LABELS}")
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise _invalid(f"{key}={value}")
    length = sum(len(key) + 1 + len(value) for key, value in labels.items())
    if length > MAX_TOGETHER:
        raise InvalidInput(
            "label.too_many", f"the labels have {length} characters together", hint=f"at most {MAX_TOGETHER}"
        )
    return tuple(sorted(labels.items()))


def changed_labels(labels: Labels, changes: Mapping[str, str | None]) -> Labels:
    """With these set; None takes one away. :raises InvalidInput: ``label.invalid``, ``label.too_many``"""
    for key in changes:
        if _KEY.fullmatch(key) is None:  # also of one that is taken away: it stands in the audit
            raise _invalid(f"{key}={changes[key] or ''}")
    wanted: dict[str, str | None] = {**dict(labels), **changes}
    return check_labels({key: value for key, value in wanted.items() if value is not None})


def kept_from(labels: Labels, tenant: str) -> str | None:
    """The tenant that a host with these labels is kept for, when that is another than ``tenant``."""
    keeper = dict(labels).get(KEPT_FOR)
    return None if keeper == tenant else keeper


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Of words ``KEY=VALUE``. :raises InvalidInput: ``label.invalid``, ``label.repeated``"""
    labels: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or _KEY.fullmatch(key) is None or _VALUE.fullmatch(value) is None:
            raise _invalid(text)
        if key in labels:
            raise _repeated(key)
        labels[key] = value
    return labels


def parse_changes(texts: Iterable[str], gone: Iterable[str]) -> dict[str, str | None]:
    """The same, and None for each key in ``gone``. :raises InvalidInput: ``label.invalid``, ``label.repeated``"""
    changes: dict[str, str | None] = {**parse_labels(texts)}
    for key in gone:
        if key in changes:
            raise _repeated(key)
        changes[key] = None
    return changes


def parse_selector(text: str) -> Selector:
    """``KEY``, ``!KEY``, ``KEY=VALUE`` and ``KEY!=VALUE`` with commas; all must hold.

    :raises InvalidInput: ``label.selector_invalid``
    """
    terms = []
    for word in text.split(","):
        bare = word.strip(" ")
        absent = bare.startswith("!")
        match = _TERM.fullmatch(bare[1:] if absent else bare)
        if match is None or (absent and match["sign"]):
            raise InvalidInput(
                "label.selector_invalid",
                f"{ascii(text)[:80]} does not say which labels",
                hint="KEY, !KEY, KEY=VALUE or KEY!=VALUE, several with commas",
            )
        terms.append(Term(match["key"], match["value"], absent or match["sign"] == "!="))
    return tuple(terms)


def selects(selector: Selector, labels: Labels) -> bool:
    """Whether everything that is asked for holds."""
    known = dict(labels)
    return all(term.holds(known) for term in selector)


def show_labels(labels: Mapping[str, str]) -> str:
    """``key=value`` with commas, as selectors are written."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _repeated(key: str) -> InvalidInput:
    return InvalidInput("label.repeated", f"label {key} is given more than once", hint="set it or take it away, once")


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        "label.invalid",
        f"{ascii(text)[:80]} is not a label",
        hint="KEY=VALUE, each of letters, digits, '.', '_' and '-', at most 63 long; the key begins and ends with a "
        "letter or digit, and may have a DNS name before it: example.org/Team=vision",
    )
