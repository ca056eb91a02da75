# SPDX-License-Identifier: Apache-2.0
"""Whatever others fill has an end: a table of the database, a field of a request, what is kept in memory."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.api import schemas
from orchestrator.catalogue.described import StrictForm
from orchestrator.store.tables import metadata
from tools.bounds_reference import BOUNDS, OF_OPERATORS, PAGE, page
from tools.tree import ROOT, files, text

KEPT = {
    "orchestrator/store/events.py": "16 numbers of rows",
    "orchestrator/store/steps.py": "by numbers of steps",
    "orchestrator/store/usage.py": "by numbers of resources",
    "orchestrator/agent/build_zipapp.py": "one",
    "orchestrator/agent/version.py": "one",
    "orchestrator/api/app.py": "one",
    "orchestrator/catalogue/catalogue.py": "one",
    "orchestrator/catalogue/described.py": "classes",
    "orchestrator/catalogue/geometries.py": "256 models of the catalogue",
    "orchestrator/catalogue/profiles.py": "one",
    "orchestrator/catalogue/quota_names.py": "256 short names",
    "orchestrator/client/shapes.py": "one",
    "orchestrator/core/geometry/cut.py": "4,096 sets of a GPU's slots",
    "orchestrator/core/hosts/snapshot_rules.py": "classes",
    "orchestrator/core/readings/frame.py": "1,024 lists of at most 200 keys",
    "orchestrator/core/wire.py": "classes",
    "orchestrator/reconcile/wanted.py": "32 GPUs of at most 512 types",
    "orchestrator/catalogue/metric_names.py": "one",
    "orchestrator/core/readings/received.py": "1,024 lists of at most 200 keys",
    "orchestrator/services/hosts/gpus.py": "1,024 states of a cut",
    "orchestrator/web/live.py": "16 texts of what one turn of a stream tells",
    "orchestrator/core/northbound/rows.py": "1,024 UUIDs, by keys that are ids",
    "orchestrator/core/overlay.py": "1,024 addresses",
    "orchestrator/web/rendering.py": "one",
    "orchestrator/web/views/fleet.py": "1,024 pictures of a GPU's slots",
    "orchestrator/web/views/overview.py": "512 pictures of at most 100 hosts",
    "orchestrator/sim/": "hosts that we make ourselves",
}
"""Files with an ``lru_cache`` or ``cache``, and why what is kept there is small. Where others say how large each is, it
is a ByteCache."""


def test_the_page_is_written_from_the_table() -> None:
    assert PAGE.read_text() == page(), "make docs"


def test_every_code_of_the_table_is_one() -> None:
    known = (ROOT / "docs/reference/errors.md").read_text()
    assert [one.code for one in BOUNDS if one.code and f"`{one.code}`" not in known] == []


def test_every_table_of_the_database_is_bounded_or_its_operators() -> None:
    bounded = {table for one in BOUNDS for table in one.tables}
    assert bounded.isdisjoint(OF_OPERATORS)
    assert set(metadata.tables) == bounded | OF_OPERATORS


def bodies(kind: type[StrictForm] = StrictForm) -> Iterator[type[StrictForm]]:
    for one in kind.__subclasses__():
        yield one
        yield from bodies(one)


def endless(schema: Any, path: str) -> Iterator[str]:
    """Texts and lists without a longest."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    fixed = {"enum", "const", "maxLength"} & schema.keys() or str(schema.get("pattern", "")).endswith("$")
    if kind == "string" and not fixed:
        yield path
    if kind == "array" and "maxItems" not in schema:
        yield f"{path}[]"
    for part in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(part, ()):
            yield from endless(one, path)
    yield from endless(schema.get("items"), f"{path}[]")
    yield from endless(schema.get("additionalProperties"), f"{path}.*")
    for group in ("properties", "$defs"):
        for name, one in schema.get(group, {}).items():
            yield from endless(one, f"{path}.{name}")


def test_every_text_and_list_of_a_request_has_a_longest() -> None:
    for module in pkgutil.iter_modules(schemas.__path__, f"{schemas.__name__}."):
        importlib.import_module(module.name)
    of_api = {body for body in bodies() if body.__module__.startswith(f"{schemas.__name__}.")}
    assert len(of_api) > 20
    found = {where for body in of_api for where in endless(body.model_json_schema(), body.__name__)}
    assert sorted(found) == []


def test_whatever_is_kept_in_memory_by_number_is_small() -> None:
    cached = re.compile(r"^\s*@(?:functools\.)?(?:lru_cache|cache)\b", re.MULTILINE)
    having = {path.as_posix() for path in files(".py", under="orchestrator/") if cached.search(text(path))}
    assert [one for one in sorted(having) if not one.startswith(tuple(KEPT))] == []
    assert [one for one in KEPT if not any(path.startswith(one) for path in having)] == []
