# SPDX-License-Identifier: Apache-2.0
"""Which agent this is: the digest that the zip file was built with, so that two builds never look the same."""

from __future__ import annotations

import importlib.resources
from functools import cache

BUILD_FILE = "build.txt"
"""Put beside this module by build_zipapp.py."""


@cache  # read out of the zip file at each observation, it took a tenth of one
def agent_version() -> str:
    """``0.1.0+<digest>``, or ``source`` when it does not run out of a zip file."""
    resource = importlib.resources.files("orchestrator.agent").joinpath(BUILD_FILE)
    return resource.read_text(encoding="utf-8").strip() if resource.is_file() else "source"
