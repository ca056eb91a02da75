# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.tree import ENTRIES
from packages.man import pages

PAGES = pages("1.2.3")


def test_each_command_has_a_page_and_the_index_names_it() -> None:
    assert set(PAGES) == {"vgpuctl.1", *(f"vgpuctl-{name}.1" for name in ENTRIES)}
    index = PAGES["vgpuctl.1"].replace("\\-", "-")
    assert [name for name in ENTRIES if f".B vgpuctl {name}\n" not in index] == []


def test_a_page_has_the_options_of_every_command_of_its_noun() -> None:
    assert "\\-\\-provisioning\\-key" in PAGES["vgpuctl-host.1"]
    assert "\\-\\-profile" in PAGES["vgpuctl-create-vm.1"]


@pytest.mark.parametrize("name", PAGES)
def test_no_line_of_text_is_taken_for_a_request_of_roff(name: str) -> None:
    known = (".TH ", ".SH ", ".PP", ".TP", ".B ", ".nf", ".fi")
    assert [line for line in PAGES[name].splitlines() if line[:1] in {".", "'"} and not line.startswith(known)] == []
