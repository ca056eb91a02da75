# SPDX-License-Identifier: Apache-2.0
"""How this program starts itself again: isolated from whatever lies where the command was typed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final, Literal

from orchestrator.core.errors import Fatal

_NEEDS: Final = {"server": "fastapi", "login": "authlib", "async": "httpx2"}
"""Extra of our package → what only it brings."""


def own_program(module: str, *words: str) -> list[str]:
    """The words that run a module of ours. ``-I``: nothing comes from the current directory, PYTHONPATH or user site.

    Without it a file called ``yaml.py`` in the directory somebody works in would run as the server's user.
    """
    return [sys.executable, "-I", "-m", module, *words]


def need_extra(extra: Literal["server", "login", "async"]) -> None:
    """The package alone is the command line and the client.

    :raises Fatal: ``program.not_installed``
    """
    if find_spec(_NEEDS[extra]) is None:
        elsewhere = (
            ", or name a server elsewhere with 'vgpuctl context add NAME --url URL'" if extra == "server" else ""
        )
        raise Fatal(
            "program.not_installed",
            f"what this needs is not installed here: {extra}",
            hint=f"'pipx install --force ./vgpuctl-VERSION.whl[{extra}]' with the same wheel brings it{elsewhere}",
        )
