# SPDX-License-Identifier: Apache-2.0
"""Where the catalogue lies: inside an installed package, else beside it in a source tree."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core.errors import Bug

_PACKAGE = Path(__file__).resolve().parent.parent


def profiles_directory() -> Path:
    """The ``vgpu_profiles`` directory.

    :raises Bug: ``catalogue.missing`` when the installation lacks it.
    """
    candidates = (_PACKAGE / "_data" / "vgpu_profiles", _PACKAGE.parent / "vgpu_profiles")
    for candidate in candidates:
        if (candidate / "nvidia").is_dir():
            return candidate
    raise Bug(
        "catalogue.missing",
        "this installation has no vgpu_profiles directory",
        details="looked in " + ", ".join(str(c) for c in candidates),
        hint="install vgpuctl again",
    )
