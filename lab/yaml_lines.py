# SPDX-License-Identifier: Apache-2.0
"""YAML values that know their line, so that a mistake can be shown where it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from lab.errors import LabError


@dataclass(frozen=True)
class Located:
    """One value of a YAML file."""

    file: str
    node: yaml.Node

    def mistake(self, reason: str) -> LabError:
        return LabError(f"{self.file}:{self.node.start_mark.line + 1}: {reason}")

    def mapping(self) -> Mapping:
        if not isinstance(self.node, yaml.MappingNode):
            raise self.mistake("a mapping (name: value) is wanted here")
        values: dict[str, Located] = {}
        for key_node, value in self.node.value:
            key = Located(self.file, key_node)
            name = key.text()
            if name in values:
                raise key.mistake(f"{name} is there twice")
            values[name] = Located(self.file, value)
        return Mapping(self.file, self.node, values)

    def sequence(self, least: int, most: int) -> list[Located]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.mistake("a list is wanted here")
        if not least <= len(self.node.value) <= most:
            raise self.mistake(f"the list has {len(self.node.value)} entries, {least} to {most} are possible")
        return [Located(self.file, item) for item in self.node.value]

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != "tag:yaml.org,2002:str":
            raise self.mistake("text is wanted here (a number needs quotes)")
        return str(self.node.value)

    def matching(self, pattern: re.Pattern[str], wanted: str) -> str:
        text = self.text()
        if not pattern.fullmatch(text):
            raise self.mistake(f"{text!r} is not {wanted}")
        return text

    def one_of(self, choices: Sequence[str]) -> str:
        text = self.text()
        if text not in choices:
            raise self.mistake(f"{text!r} is not one of {', '.join(choices)}")
        return text

    def integer(self, least: int, most: int) -> int:
        value = self.plain()
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.mistake("a whole number is wanted here")
        if not least <= value <= most:
            raise self.mistake(f"{value} is out of range: {least} to {most}")
        return value

    def plain(self) -> Any:
        """The value as YAML's plain types."""
        try:
            return yaml.safe_load(yaml.serialize(self.node))
        except yaml.YAMLError as error:
            raise self.mistake("plain values only") from error


@dataclass(frozen=True)
class Mapping(Located):
    values: dict[str, Located]

    def only(self, *names: str) -> None:
        """Refuses names that are not among ``names``."""
        for name, value in self.values.items():
            if name not in names:
                raise value.mistake(f"unknown field {name}; known: {', '.join(names)}")

    def need(self, name: str) -> Located:
        if name not in self.values:
            raise self.mistake(f"{name} is missing")
        return self.values[name]

    def get(self, name: str) -> Located | None:
        return self.values.get(name)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.values.get(name)
        return default if value is None else value.integer(least, most)


def read_yaml(file: str, text: str) -> Located:
    """Raises LabError for text that is not one YAML document."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LabError(f"{file}:{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise LabError(f"{file}:1: {' '.join(str(error).split())}") from error
    if node is None:
        raise LabError(f"{file}:1: the file is empty")
    return Located(file, node)
