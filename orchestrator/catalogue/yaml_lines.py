# SPDX-License-Identifier: Apache-2.0
"""YAML whose every value knows its line. Anchors, duplicate keys and deep nesting are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from orchestrator.catalogue.problems import Problem, invalid
from orchestrator.core.file_errors import why_unreadable

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class LinedYaml:
    """A parsed document: its plain ``data`` and the line of each value."""

    def __init__(self, file: str, text: str) -> None:
        """Parse ``text``; ``file`` is what problems call it.

        :raises InvalidInput: ``catalogue.invalid``
        """
        self.file = file
        try:
            _refuse_tricks(file, text)
            loader = _LOADER(text)
            try:
                self._node: yaml.Node | None = loader.get_single_node()
                _refuse_duplicates(file, self._node)
                self.data: object = None if self._node is None else loader.construct_document(self._node)
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise invalid([Problem(file=file, line=line, reason=f"not YAML: {error.problem}")]) from error
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
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid([Problem(file=str(path), line=0, reason=f"cannot be read: {why_unreadable(error)}")]) from error
    if len(raw) > MAX_BYTES:
        raise invalid([Problem(file=str(path), line=0, reason=f"larger than {MAX_BYTES // 1024} KiB")])
    return LinedYaml(str(path), text)


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
        if isinstance(event, yaml.AliasEvent):
            raise invalid([Problem(file=file, line=line, reason="anchors and aliases are not supported")])
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise invalid([Problem(file=file, line=line, reason=f"nested more than {MAX_DEPTH} deep")])


def _refuse_duplicates(file: str, node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if str(key.value) in seen:
                line = key.start_mark.line + 1
                raise invalid([Problem(file=file, line=line, reason=f"{key.value} is given twice")])
            seen.add(str(key.value))
            _refuse_duplicates(file, value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _refuse_duplicates(file, child)
