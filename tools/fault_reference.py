# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.fault_reference`` writes docs/reference/faults.md: each fault of tests/faults/catalogue.csv, and
the tests whose marks say that they assert it. The marks are read without importing a test."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.tree import ROOT, files, tree

CATALOGUE = Path("tests/faults/catalogue.csv")
PAGE = Path("docs/reference/faults.md")
_GROUPS = {
    "A": "Crashes inside an operation",
    "B": "Hosts",
    "C": "libvirt and QEMU",
    "D": "Mediated devices and vendor VFIO",
    "E": "SR-IOV",
    "F": "MIG",
    "G": "Faults of GPUs",
    "H": "Fabric manager",
    "I": "Controllers, database, concurrency",
    "J": "Network and SSH",
    "K": "Drivers and playbooks",
    "L": "Images, seeds, storage",
    "M": "Hostile tenants",
}
_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What goes wrong, and which test asserts what then holds

Written by `make docs` from `tests/faults/catalogue.csv` and the marks `@pytest.mark.fault("F03")` on tests;
`make lint` compares them. A test that only comes near a fault has no mark.

"""


@dataclass(frozen=True)
class Fault:
    """``why_not``: why no test asserts it; empty when one does."""

    id: str
    group: str
    fault: str
    why_not: str


def catalogue() -> tuple[Fault, ...]:
    with (ROOT / CATALOGUE).open(encoding="utf-8", newline="") as file:
        return tuple(Fault(**row) for row in csv.DictReader(file))


def marked() -> dict[str, tuple[str, ...]]:
    """Fault → tests as ``path::name``, in order of path and line."""
    found: dict[str, list[str]] = {}
    for path in files(".py", under="tests/"):
        for test, fault in _marks(tree(path)):
            found.setdefault(fault, []).append(f"{path.as_posix()}::{test}")
    return {fault: tuple(tests) for fault, tests in found.items()}


def _marks(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
                    yield from ((node.name, str(ast.literal_eval(argument))) for argument in decorator.args)


def page() -> str:
    """The whole page, with one row for each fault."""
    return _HEAD + "\n".join(_lines(catalogue(), marked()))


def _lines(faults: tuple[Fault, ...], tests: dict[str, tuple[str, ...]]) -> Iterator[str]:
    asserted = sum(fault.id in tests for fault in faults)
    yield f"{asserted} of {len(faults)} are asserted."
    for group, title in _GROUPS.items():
        yield f"\n## {group}. {title}\n"
        yield "| id | what goes wrong: what holds then | test, or why there is none |"
        yield "|---|---|---|"
        for fault in faults:
            if fault.group == group:
                shown = "<br>".join(f"`{test}`" for test in tests.get(fault.id, ())) or fault.why_not
                yield f"| {fault.id} | {fault.fault} | {shown} |"
    yield ""


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
