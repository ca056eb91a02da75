# SPDX-License-Identifier: Apache-2.0
"""Writes the options of the Ansible modules ``offering`` and ``vm``: ``python -m tools.collection_options``.

They follow from the form of an offering and from the body that makes a VM, twice: as documentation, which Ansible reads
from the module's text, and as what the module checks. A test compares both with what would be written now.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from orchestrator.api.schemas.vms import CreateVmBody
from orchestrator.catalogue.offering_schema import OfferingForm, json_schema
from tools.tree import ROOT

_MODULES: Final = ROOT / "collections/ansible_collections/vgpuctl/cloud/plugins/modules"
SCHEMA: Final = ROOT / "vgpu_profiles/offerings/schema.json"
_TYPES: Final = {"string": "str", "integer": "int", "boolean": "bool", "array": "list", "object": "dict"}
_NO_LOG: Final = {"user_data": True, "provision_secrets": True, "ssh_keys": False}
"""Ansible prints what a module is given, but for these; it asks about every option whose name speaks of keys."""
_CHECKED: Final = re.compile(r"FORM = {.*?\n}\n", re.DOTALL)


@dataclass(frozen=True)
class Module:
    """A module of the collection whose options follow from a form."""

    name: str
    form: type[BaseModel]
    by_hand: frozenset[str]
    """Options that the module writes itself, and members that it does not offer."""
    before: str
    """The option written by hand that follows those of the form in the documentation."""
    defaults: bool
    """Whether what is left out has the form's default; else it stays as it is."""
    added: Mapping[str, str]
    """Versions of the collection, of options that its first one did not have."""

    @property
    def path(self) -> Path:
        """Of its text."""
        return _MODULES / f"{self.name}.py"

    def written(self, text: str) -> str:
        """The module's text with the options of today's form."""
        options = self.options()
        documented = "".join(f"  {line}\n" for name, option in options.items() for line in _documented(name, option))
        between = re.compile(rf"(?<=    default: present\n).*?(?=  {self.before}:\n)", re.DOTALL)
        text = between.sub(lambda _: documented, text)
        form = "".join(f"    {json.dumps(name)}: {_argument(name, option)!r},\n" for name, option in options.items())
        text = _CHECKED.sub(lambda _: f"FORM = {{\n{form}}}\n", text)
        formatter = [sys.executable, "-m", "ruff", "format", "-"]
        return subprocess.run(formatter, input=text, capture_output=True, check=True, text=True, cwd=ROOT).stdout

    def options(self) -> dict[str, dict[str, Any]]:
        """By name, as Ansible's documentation has them. What the form demands, a task that removes one leaves out."""
        schema = self.form.model_json_schema()
        forms = schema.get("$defs", {})
        members = {name: member for name, member in schema["properties"].items() if name not in self.by_hand}
        options = {name: _option(member, forms, defaults=self.defaults) for name, member in members.items()}
        for name, version in self.added.items():
            options[name]["version_added"] = version
        return options


MODULES: Final = (
    Module(
        name="offering", form=OfferingForm, by_hand=frozenset({"name", "unlisted"}), before="unlisted", defaults=True,
        added=dict.fromkeys(("vcpus", "memory", "disk", "hosts"), "0.3.0"),
    ),
    Module(
        name="vm", form=CreateVmBody,
        by_hand=frozenset({
            "name", "tenant", "start", "label", "labels", "protected", "preempt", "from_snapshot", "from_backup",
        }),
        before="memory", defaults=False,
        added=dict.fromkeys(
            (
                "more_networks", "volumes", "nic", "tpm", "provision", "no_provision", "provision_settings",
                "provision_secrets",
            ),
            "0.3.0",
        ),
    ),
)  # fmt: skip


def _option(described: Mapping[str, Any], forms: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
    kinds = [kind for kind in described.get("anyOf", [described]) if kind.get("type") != "null"]
    inner = next((forms[kind["$ref"].rpartition("/")[2]] for kind in kinds if "$ref" in kind), None)
    kind = inner or kinds[0]
    option: dict[str, Any] = {"description": _sentence(described["description"]), "type": _TYPES[kind["type"]]}
    option |= {"elements": _TYPES[kind["items"]["type"]]} if "items" in kind else {}
    choices = kind.get("enum") or [kind[key] for key in ("const",) if key in kind]
    option |= {"choices": choices} if choices and kind["type"] == "string" else {}
    if defaults and described.get("default") is not None and inner is None:
        option["default"] = described["default"]
    return option if inner is None else option | {"suboptions": _suboptions(inner, forms)}


def _suboptions(form: Mapping[str, Any], forms: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    options = {name: _option(member, forms, defaults=True) for name, member in form["properties"].items()}
    for name in form.get("required", ()):
        options[name]["required"] = True
    return options


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


def _argument(name: str, option: Mapping[str, Any]) -> dict[str, Any]:
    """As a module checks it: without what is for readers."""
    kept = {key: value for key, value in option.items() if key not in {"description", "version_added", "suboptions"}}
    kept |= {"no_log": _NO_LOG[name]} if name in _NO_LOG else {}
    inner = {name: _argument(name, member) for name, member in option.get("suboptions", {}).items()}
    return kept | ({"options": inner} if inner else {})


def main() -> None:
    for module in MODULES:
        module.path.write_text(module.written(module.path.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
