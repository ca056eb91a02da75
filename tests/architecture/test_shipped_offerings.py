# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.catalogue.profiles import shipped_profiles
from tools.shipped_offerings import PAGE, page, rows


def test_every_shipped_offering_is_in_the_reference_with_a_lab_host_or_why_none_gives_it() -> None:
    assert PAGE.read_text() == page(), "run make docs"
    assert sorted(name for *_, names in rows() for name in names) == sorted(shipped_profiles().offerings)
