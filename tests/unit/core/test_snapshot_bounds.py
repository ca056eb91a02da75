# SPDX-License-Identifier: Apache-2.0
"""Every number, text and list that an agent may send has a bound of its kind; what is above it is not believed."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from orchestrator.core.errors import Unknown
from orchestrator.core.hosts.snapshot import HostSnapshot, Unchanged
from orchestrator.core.hosts.snapshot_rules import BOUNDS, check_bounds, checked, checked_domain, checked_unchanged
from orchestrator.core.wire import snapshot_from_dict, snapshot_to_dict

Path = tuple[str | int, ...]
_TEXTS = {"address": "0000:41:00.0", "bridges": "0000:41:00.0", "pool_id": "6a1f0c1e-4c0b-4d0e-9a55-0f7d3c1b2a90"}
"""By field, where not any text is believed."""
_UNIONS = (typing.Union, types.UnionType)


def something(hint: Any, name: str = "") -> Any:
    """A value with all that can hang below it."""
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return typing.cast("Any", hint)(**{one.name: something(hints[one.name], one.name) for one in fields(hint)})
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return (something(parts[0], name),)
    if origin is typing.Literal:
        return parts[0]
    if origin in _UNIONS:
        return something(next(one for one in parts if one is not type(None)), name)
    return {int: 1, bool: False, str: _TEXTS.get(name, "x")}[hint]


FULL: HostSnapshot = something(HostSnapshot)


def leaves(value: Any, kind: type, path: Path = ()) -> Iterator[Path]:
    """Paths of all that is exactly of that kind."""
    if type(value) is kind:
        yield path
    if is_dataclass(value):
        for one in fields(value):
            yield from leaves(getattr(value, one.name), kind, (*path, one.name))
    elif isinstance(value, tuple):
        for at, item in enumerate(value):
            yield from leaves(item, kind, (*path, at))


def put(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        return (*value[:first], put(value[first], rest, new), *value[first + 1 :])
    return replace(value, **{first: put(getattr(value, first), rest, new)})


def at(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part] if isinstance(part, int) else getattr(value, part)
    return value


NUMBERS = list(leaves(FULL, int))
_LARGE = {
    "at", "until", "storage_free_bytes", "storage_total_bytes", "size_bytes", "length_bytes", "disk_bytes",
    "capacity_bytes", "free_bytes", "bytes_per_s", "bytes_per_s_max", "clique",
}  # fmt: skip
"""Seconds since the epoch, bytes, and what NVML tells in 32 bits."""


def received(snapshot: HostSnapshot) -> HostSnapshot:
    """As the link does with what came over the wire."""
    return checked(snapshot_from_dict(snapshot_to_dict(snapshot)))


def refusal(snapshot: HostSnapshot) -> Unknown | None:
    try:
        received(snapshot)
    except Unknown as error:
        return error
    return None


def refused(snapshot: HostSnapshot) -> bool:
    error = refusal(snapshot)
    return error is not None and error.code == "agent.answer_invalid" and len(error.message) < 200 and error.hint != ""


def test_what_the_table_is_asked_about_is_everything() -> None:
    assert not refused(FULL)
    assert len(NUMBERS) > 30
    told = {type(at(FULL, path)) for path in leaves_of_classes(FULL)} | {Unchanged}
    assert told == set(BOUNDS), "a class of the snapshot has no row, or a row has no class"


def leaves_of_classes(value: Any, path: Path = ()) -> Iterator[Path]:
    if is_dataclass(value):
        yield path
        for one in fields(value):
            yield from leaves_of_classes(getattr(value, one.name), (*path, one.name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from leaves_of_classes(item, (*path, number))


def test_every_row_of_the_table_is_a_field() -> None:
    for kind, rows in BOUNDS.items():
        assert set(rows) <= {one.name for one in fields(kind)}, kind


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
def test_no_number_of_a_host_is_larger_than_its_kind_can_be(path: Path) -> None:
    for number in (-1, -(2**62), 2**53, 2**62, 2**64, 10**5000):
        assert refused(put(FULL, path, number)), number
    assert refused(put(FULL, path, 2**31)) or path[-1] in _LARGE


@pytest.mark.parametrize("path", list(leaves(FULL, str)), ids=lambda path: ".".join(map(str, path)))
def test_no_text_of_a_host_is_longer_than_what_it_names(path: Path) -> None:
    told = put(FULL, path, "x" * 500_000)
    assert refused(told) or len(at(received(told), path)) <= 1000, "kept as it came"


@pytest.mark.parametrize("path", list(leaves(FULL, tuple)), ids=lambda path: ".".join(map(str, path)))
def test_no_list_of_a_host_is_longer_than_its_kind_can_be(path: Path) -> None:
    told = put(FULL, path, at(FULL, path) * 20_000)
    if "problems" in path:
        assert len(at(received(told), path)) <= 100, "kept as it came"
    else:
        with pytest.raises(Unknown, match="items, where"):
            check_bounds(told)


def test_what_is_told_without_a_snapshot_is_bounded_as_well() -> None:
    with pytest.raises(Unknown):
        checked_unchanged(Unchanged(storage_free_bytes=2**62))
    with pytest.raises(Unknown):
        checked_domain(replace(FULL.domains[0], memory_mib=2**62))


def test_huge_pages_are_not_more_than_memory_can_be() -> None:
    pages = replace(FULL.nodes[0].hugepages[0], size_kib=2**24, total=2**31 - 1)
    assert refused(put(FULL, ("nodes", 0, "hugepages"), (pages,)))
