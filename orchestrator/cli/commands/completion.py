# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl completion SHELL``"""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer._completion_shared import get_completion_script

from orchestrator.cli.tree import COMPLETE_VARIABLE

Shell = Literal["bash", "zsh", "fish"]
"""Shells that we have a script for."""


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script for a shell: source <(vgpuctl completion bash)"""
    print(get_completion_script(prog_name="vgpuctl", complete_var=COMPLETE_VARIABLE, shell=shell))
