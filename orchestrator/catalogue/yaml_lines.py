# SPDX-License-Identifier: Apache-2.0
"""YAML whose every value knows its line. Anchors, merge keys, duplicate keys, deep nesting, letters that nobody sees
and numbers that are not what people read are refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from orchestrator.catalogue.problems import Problem, invalid
from orchestrator.core.errors import why_unreadable
from orchestrator.regular_file import read_at_most

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_OCTAL = re.compile(r"[-+]?0[0-7_]+", re.ASCII)
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class LinedYaml:
    """A parsed document: its plain ``data`` and the line of each value."""

    def __init__(self, file: str, text: str) -> None:
        """Parse ``text``; ``file`` is what problems call it.

        :raises InvalidInput: ``catalogue.invalid``
        """
        self.file = file
        try:
            _refuse_unseen(file, text, first_line=1)
            _refuse_tricks(file, text)
            loader = _LOADER(text)
            try:
                self._node: yaml.Node | None = loader.get_single_node()
                _refuse_duplicates(file, self._node)
                for scalar in _scalars(self._node):
                    _refuse_unseen(file, scalar.value, first_line=scalar.start_mark.line + 1)
                    _refuse_misread(file, loader, scalar)
                self.data: object = None if self._node is None else loader.construct_document(self._node)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise invalid([Problem(file=file, line=line, reason=_why_not(error, text, line))]) from error
        except (yaml.YAMLError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise invalid([Problem(file=file, line=0, reason=f"not YAML: {reason}")]) from error

    def line_of(self, path: Sequence[str | int]) -> int:
        """Line of the value at ``path``, or of its nearest parent that exists."""
        node, line = self._node, 1
        for part in path:
            node = _child(node, part)
            if node is None:
                return line
            line = node.start_mark.line + 1
        return line


def read_yaml(path: Path) -> LinedYaml:
    """The file as YAML.

    :raises InvalidInput: ``catalogue.invalid``
    """
    try:
        raw = read_at_most(path, MAX_BYTES)
        text = None if raw is None else raw.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise invalid([Problem(file=str(path), line=0, reason=f"cannot be read: {why_unreadable(error)}")]) from error
    if text is None:
        raise invalid([Problem(file=str(path), line=0, reason=f"larger than {MAX_BYTES // 1024} KiB")])
    return LinedYaml(str(path), text)


def _why_not(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    if isinstance(error, yaml.composer.ComposerError):
        return "a second document begins here: put each into a file of its own"
    indented = any(start.lstrip(" ").startswith("\t") for start in text.split("\n")[line - 1 : line])
    return f"not YAML: {'a tab stands before it, where spaces indent' if indented else error.problem}"


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child
    return None


def _refuse_tricks(file: str, text: str) -> None:
    """Aliases can blow a small file up to gigabytes, nesting can exhaust the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise invalid([Problem(file=file, line=line, reason="anchors and aliases are not supported")])
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise invalid([Problem(file=file, line=line, reason=f"nested more than {MAX_DEPTH} deep")])


def _refuse_unseen(file: str, text: str, *, first_line: int) -> None:
    """Letters that turn the direction of writing, have no width or are none: the file is not what people read."""
    if text.isascii() and text.isprintable():
        return
    for number, line in enumerate(text.split("\n")):
        for letter in line:
            if letter not in "\t\r" and unicodedata.category(letter) in _UNSEEN:
                reason = f"the character U+{ord(letter):04X} cannot be seen and is not allowed"
                raise invalid([Problem(file=file, line=first_line + number, reason=reason)])


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _scalars(child)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)


def _refuse_misread(file: str, loader: yaml.SafeLoader, scalar: yaml.ScalarNode) -> None:
    """A number too long to be read, a day that no calendar has; and numbers that YAML 1.1 reads otherwise than people:
    1:30 as ninety, 010 as eight."""
    constructor = loader.yaml_constructors.get(scalar.tag)
    if constructor is None or scalar.tag == _TEXT:
        return
    line, text = scalar.start_mark.line + 1, f"{scalar.value[:40]!a}"
    try:
        value = constructor(loader, scalar)
    except ValueError as error:
        kind = scalar.tag.rpartition(":")[2]
        reason = f"{text} is no {kind} that can be read"
        raise invalid([Problem(file=file, line=line, reason=reason)]) from error
    if scalar.tag in _NUMBERS and (":" in scalar.value or _OCTAL.fullmatch(scalar.value)):
        reason = f"{text} is the number {str(value)[:40]} to YAML: write that, or put a text in quotes"
        raise invalid([Problem(file=file, line=line, reason=reason)])


def _refuse_duplicates(file: str, node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.tag == _MERGE:
                raise invalid([Problem(file=file, line=key.start_mark.line + 1, reason="merge keys are not supported")])
            if str(key.value) in seen:
                line = key.start_mark.line + 1
                raise invalid([Problem(file=file, line=line, reason=f"{key.value} is given twice")])
            seen.add(str(key.value))
            _refuse_duplicates(file, value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _refuse_duplicates(file, child)
