# SPDX-License-Identifier: Apache-2.0
"""The command reference, drawn from the commands themselves: ``python -m tools.cli_reference``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from typer import Context

from orchestrator.cli.tree import ENTRIES, HELP_OPTIONS, SECTIONS, load

WIDTH: Final = 100

_HEAD: Final = """\
# Command line

Written by `make docs`; a test compares it with the commands.

Every command has `-o table|json|yaml`; JSON is the API's own object. Errors are one line on standard error
(`error: message [code]`), reasons under it, then a hint; with `-o json` they are JSON.
What ends something for good asks first where standard input is a terminal, and `--yes` answers. Where it is none, as in
scripts, what the command names is done without it; what it does not name one by one (patterns, `-l`, `apply --prune`,
the volumes behind `tenant key revoke`) is refused without `--yes`.

| exit code | meaning |
|---|---|
| 0 | done |
| 2 | the request itself is wrong |
| 3 | `plan`, `diff` and `doctor`: something differs from what is wanted |
| 4 | no such object |
| 5 | it exists otherwise, or its state forbids this |
| 6 | denied |
| 7 | quota exceeded |
| 8 | nothing free fits |
| 9 | a host, libvirt, the driver or the network failed |
| 10 | an operation is stuck and needs a decision |
| 70 | a bug in vgpuctl |
| 130 | interrupted; the operation goes on |

`VGPUCTL_STATE` moves all state (default: `/var/lib/vgpuctl` for root, else `~/.local/state/vgpuctl`).
The first command starts the server; it ends when idle for `VGPUCTL_SERVE_IDLE_SECONDS` (900).
`VGPUCTL_TOKEN_FILE` names a file with a token to act with (`VGPUCTL_TOKEN` holds it itself); without one the server
goes by the uid. Completion: `source <(vgpuctl completion bash)`.
"""


def render() -> str:
    """The page in Markdown."""
    trees = {name: list(_tree(f"vgpuctl {name}", load(name, entry))) for name, entry in ENTRIES.items()}
    pages = [_page(words, text) for found in trees.values() for words, text in found]
    index = [_row(title, [words for name in names for words, _ in trees[name]]) for title, names in SECTIONS.items()]
    return "\n".join([_HEAD, "## Index\n\n| about | commands |\n|---|---|\n" + "".join(index), *pages])


def _row(title: str, commands: list[str]) -> str:
    links = (f"[{words.removeprefix('vgpuctl ')}](#{words.replace(' ', '-')})" for words in commands)
    return f"| {title} | {', '.join(links)} |\n"


def _tree(words: str, command: Any) -> Iterator[tuple[str, str]]:
    context = Context(
        command,
        info_name=words,
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=HELP_OPTIONS["help_option_names"],
    )
    yield words, str(command.get_help(context))
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _tree(f"{words} {name}", child)


def _page(words: str, text: str) -> str:
    return f"## {words}\n\n```\n{text.rstrip()}\n```\n"


if __name__ == "__main__":
    print(render(), end="")
