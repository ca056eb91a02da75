# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.bench import Bench


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def furnished(bare: Bench) -> Iterator[Bench]:
    """A host on which there is all that a VM needs. Networks of the tests' libvirt outlive its connections."""
    bare.furnish(bare.vm)
    yield bare
    for network in bare.libvirt.listAllNetworks():
        if network.name() != "default":
            if network.isActive():
                network.destroy()
            network.undefine()
