# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

from orchestrator.core.operation import OUT_OF_REACH
from tools.error_reference import CODE, mentions
from tools.tree import text

PAGE = Path("docs/howto/stuck-operations.md")
OF_HOSTS = {"agent", "vgpu", "libvirt"}
"""What is raised about these can make an operation stuck."""
FAMILIES = {"Retryable", "Fatal", "Unknown"}


def named() -> set[str]:
    rows = re.findall(r"^\| (`.*?) \|", text(PAGE), re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row) if CODE.fullmatch(code)}


def test_the_runbook_names_codes_that_exist_and_everything_that_a_host_makes_stuck_by() -> None:
    known = {mention.code for mention in mentions()}
    needed = {one.code for one in mentions() if one.code.partition(".")[0] in OF_HOSTS and one.family in FAMILIES}
    needed |= OUT_OF_REACH | {one.code for one in mentions() if one.family == "Stuck"} - {"operation.stuck"}
    assert (needed - named(), named() - known) == (set(), set())
