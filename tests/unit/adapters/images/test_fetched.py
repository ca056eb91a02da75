# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
from pathlib import Path

from orchestrator.adapters.controllers.images import FetchedImages
from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.core.vms.image import Image
from orchestrator.store.database import Store
from tests.fakes.control_plane import KEY


def test_what_another_controller_removes_before_the_first_round_is_removed_in_it(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.sqlite'}", key=KEY, new_site="s")
    library = ImageLibrary(
        tmp_path / "images", Sources(files=Readable(never_below=tmp_path / "state"), downloads=Downloads())
    )
    content = b"guest"
    sha256 = hashlib.sha256(content).hexdigest()
    library.keep(iter([content]), sha256, "raw")
    with store.begin() as tx:
        tx.images.add(
            Image(name="guest", sha256=sha256, format="raw", size_bytes=5, virtual_size_bytes=512, created_at=1.0)
        )
    images = FetchedImages(library, store, "here", "secret")
    with store.begin() as tx:
        tx.images.remove("guest")
    images.round()
    assert library.local(sha256, "raw") is None
    store.close()
