# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.engine.live_site import Site


@pytest.fixture
def site_on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    with ExitStack() as stack:

        def made(backend: str) -> Site:
            if backend == "sqlite":
                (tmp_path / "one").mkdir()
                site = Site(tmp_path, f"sqlite:///{tmp_path / 'one' / 'vgpuctl.sqlite'}")
            else:
                site = Site(tmp_path, str(request.getfixturevalue("postgres").database()))
            stack.callback(site.close)
            return site

        yield made
