# SPDX-License-Identifier: Apache-2.0
"""Groups of commands (``vgpuctl host …``) that all behave alike."""

from __future__ import annotations

import typer

from orchestrator.cli.tree import HELP_OPTIONS, Commands, Group


def new_group(summary: str) -> typer.Typer:
    """A group that prints its help when called without a command."""
    group = Commands(
        cls=Group, rich_markup_mode=None, help=summary, add_completion=False, context_settings=HELP_OPTIONS
    )

    def print_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())

    group.callback(invoke_without_command=True, help=summary)(print_help)
    return group
