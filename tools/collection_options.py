# SPDX-License-Identifier: Apache-2.0
"""Writes the options of the Ansible collection's ``offering`` module: ``python -m tools.collection_options``.

They follow from the form of an offering, twice: as documentation, which Ansible reads from the module's text, and as
what the module checks. A test compares both with what would be written now.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from orchestrator.catalogue.offering_schema import OfferingForm, json_schema
from tools.tree import ROOT

MODULE: Final = ROOT / "collections/ansible_collections/vgpuctl/cloud/plugins/modules/offering.py"
SCHEMA: Final = ROOT / "vgpu_profiles/offerings/schema.json"
_TYPES: Final = {"string": "str", "integer": "int", "boolean": "bool", "array": "list", "object": "dict"}
_ADDED: Final = dict.fromkeys(("vcpus", "memory", "disk", "hosts"), "0.3.0")
"""Versions of the collection, of options that its first one did not have."""
_BY_HAND: Final = ("name", "unlisted")
"""Options that the module writes itself: they are no part of what it compares."""
_DOCUMENTED: Final = re.compile(r"(?<=    default: present\n).*?(?=  unlisted:\n)", re.DOTALL)
_CHECKED: Final = re.compile(r"FORM = {.*?\n}\n", re.DOTALL)


def written(text: str) -> str:
    """The module's text with the options of today's form."""
    documented = "".join(f"  {line}\n" for name, one in options().items() for line in _documented(name, one))
    text = _DOCUMENTED.sub(lambda _: documented, text)
    form = "".join(f"    {json.dumps(name)}: {_argument(one)!r},\n" for name, one in options().items())
    text = _CHECKED.sub(lambda _: f"FORM = {{\n{form}}}\n", text)
    formatter = [sys.executable, "-m", "ruff", "format", "-"]
    return subprocess.run(formatter, input=text, capture_output=True, check=True, text=True, cwd=ROOT).stdout


def options() -> dict[str, dict[str, Any]]:
    """By name, as Ansible's documentation has them."""
    schema = json_schema()
    form = schema["$defs"][OfferingForm.__name__]
    return dict(_options(form, schema["$defs"], skipped=_BY_HAND))


def _options(
    form: Mapping[str, Any], forms: Mapping[str, Any], skipped: tuple[str, ...] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, one in form["properties"].items():
        if name not in skipped:
            yield name, _option(name, one, forms, required=not skipped and name in form.get("required", ()))


def _option(name: str, described: Mapping[str, Any], forms: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """What the form demands itself of a whole offering, a task that removes one leaves out."""
    kinds = [one for one in described.get("anyOf", [described]) if one.get("type") != "null"]
    inner = next((forms[one["$ref"].rpartition("/")[2]] for one in kinds if "$ref" in one), None)
    kind = inner or kinds[0]
    option: dict[str, Any] = {"description": _sentence(described["description"]), "type": _TYPES[kind["type"]]}
    option |= {"required": True} if required else {}
    option |= {"elements": _TYPES[kind["items"]["type"]]} if "items" in kind else {}
    choices = kind.get("enum") or [kind[key] for key in ("const",) if key in kind]
    option |= {"choices": choices} if choices and kind["type"] == "string" else {}
    option |= {"default": described["default"]} if described.get("default") is not None and inner is None else {}
    option |= {"suboptions": dict(_options(inner, forms))} if inner else {}
    return option | ({"version_added": _ADDED[name]} if name in _ADDED else {})


def _sentence(text: str) -> str:
    """In Ansible's words: what is null is left out, and values are marked."""
    marked = re.sub(r"``([^`]*)``", r"V(\1)", text)
    return marked.replace(". null:", ". Left out:").replace("null:", "left out:") + "."


def _documented(name: str, option: Mapping[str, Any]) -> Iterator[str]:
    yield f"{name}:"
    for key, value in option.items():
        if key == "suboptions":
            yield "  suboptions:"
            for inner, one in value.items():
                yield from (f"    {line}" for line in _documented(inner, one))
        else:
            yield f"  {key}: {_yaml(value)}"


def _yaml(value: Any) -> str:
    """On one line; quoted where a reader would take it for something else."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    plain = isinstance(value, str) and value and not re.search(r": | #|^\W", value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _argument(option: Mapping[str, Any]) -> dict[str, Any]:
    """As a module checks it: without what is for readers."""
    kept = {key: value for key, value in option.items() if key not in {"description", "version_added", "suboptions"}}
    inner = {name: _argument(one) for name, one in option.get("suboptions", {}).items()}
    return kept | ({"options": inner} if inner else {})


def main() -> None:
    MODULE.write_text(written(MODULE.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
