# SPDX-License-Identifier: Apache-2.0
"""docs/reference/faults.md as the catalogue and the marks say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.faults.marks import Fault, catalogue, marked

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
