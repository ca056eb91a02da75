# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.settings_reference`` writes docs/reference/settings.md from the settings' model."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orchestrator.server.settings import Settings
from tools.tree import ROOT

PAGE: Final = ROOT / "docs/reference/settings.md"
_HEAD: Final = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Settings of a server

Written by `make docs` from `orchestrator/server/settings.py`. A setting is a variable of the server's environment,
else a line of `config.yaml` in its state directory (`workers: 32`), else the default. An unknown line is refused
(`settings.invalid`), as a misspelt one would quietly be the default. They are read when the server starts.

| in `config.yaml` | variable | default | may be | what it means |
|---|---|---|---|---|
"""


def meanings() -> dict[str, str]:
    """What stands below each field."""
    tree = ast.parse((ROOT / "orchestrator/server/settings.py").read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings")
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def page() -> str:
    """The whole page."""
    said = meanings()
    rows = [_row(name, field, said[name]) for name, field in Settings.model_fields.items()]
    return _HEAD + "".join(f"{row}\n" for row in rows)


def _row(name: str, field: FieldInfo, meaning: str) -> str:
    cells = (
        f"`{name}`",
        f"`VGPUCTL_{name.upper()}`",
        _default(field),
        _bounds(field),
        meaning.replace("``", "`").replace("None:", "none:"),
    )
    return f"| {' | '.join(cells)} |"


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "`/var/lib/vgpuctl` of root, else `~/.local/state/vgpuctl`"
    return "none" if field.default is None else f"`{field.default}`"


def _bounds(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(field.annotation))
    low, high = _limit(field, "ge"), _limit(field, "le")
    if low is None:
        return ""
    return f"{low:,} or more" if high is None else f"{low:,} to {high:,}"


def _limit(field: FieldInfo, name: str) -> Any:
    return next((getattr(one, name) for one in field.metadata if hasattr(one, name)), None)


if __name__ == "__main__":
    PAGE.write_text(page())
