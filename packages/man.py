# SPDX-License-Identifier: Apache-2.0
"""Man pages, drawn from the commands themselves: ``python -m packages.man VERSION DIRECTORY``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import Context

from orchestrator.cli.tree import ENTRIES, HELP_OPTIONS, load


def _plain(text: str) -> str:
    """Text that roff takes for nothing else."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    lines = (line.strip() for line in escaped.splitlines())
    return "\n".join(f"\\&{line}" if line[0] in ".'" else line for line in lines if line)


def _page(name: str, summary: str, version: str, body: Iterator[str]) -> str:
    head = (f'.TH "{name.upper()}" 1 "" "vgpuctl {version}"', ".SH NAME", f"{_plain(name)} \\- {_plain(summary)}")
    return "\n".join([*head, *body]) + "\n"


def _command(words: str, command: Any) -> Iterator[str]:
    context = Context(command, info_name=words, help_option_names=HELP_OPTIONS["help_option_names"])
    children = {name: child for name, child in getattr(command, "commands", {}).items() if not child.hidden}
    about, _, examples = (command.help or "").partition("Examples:")
    yield f'.SH "{words}"'
    yield f".B {_plain(words)}\n{_plain(' '.join(command.collect_usage_pieces(context)))}\n.PP\n{_plain(about)}"
    for record in (one.get_help_record(context) for one in command.get_params(context)):
        if record is not None:
            yield f".TP\n.B {_plain(record[0])}\n{_plain(record[1])}"
    shown = command.epilog or examples
    if shown:
        yield f".PP\n.nf\n{_plain(shown)}\n.fi"
    for name, child in children.items():
        yield from _command(f"{words} {name}", child)


def _index() -> Iterator[str]:
    yield ".SH SYNOPSIS\n.B vgpuctl\nCOMMAND [OPTIONS]\n.SH COMMANDS"
    for name, entry in ENTRIES.items():
        yield f".TP\n.B vgpuctl {_plain(name)}\n{_plain(entry.summary)}"


def pages(version: str) -> dict[str, str]:
    """Roff by file name: one page with all commands, and one for each."""
    found = {"vgpuctl.1": _page("vgpuctl", "VMs with NVIDIA vGPUs on KVM hosts", version, _index())}
    for name, entry in ENTRIES.items():
        words = f"vgpuctl {name}"
        body = _command(words, load(name, entry))
        found[f"vgpuctl-{name}.1"] = _page(f"vgpuctl-{name}", entry.summary, version, body)
    return found


if __name__ == "__main__":
    for file, text in pages(sys.argv[1]).items():
        (Path(sys.argv[2]) / file).write_text(text, encoding="utf-8")
