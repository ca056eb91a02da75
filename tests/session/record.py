# SPDX-License-Identifier: Apache-2.0
"""A session as an asciicast (version 2, which asciinema plays) and as a page to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from tests.session.play import COLUMNS, Said
from tests.session.scenes import SCENES, Person, Scene
from tools.tree import ROOT

_LINES: Final = 40
_KEY_S, _LINE_S, _LOOK_S = 0.03, 0.02, 1.5
"""Pauses: between keys, between lines of an answer, before the next command."""
_PERSONS: Final = frozenset(get_args(Person))
_SIMULATED: Final = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Three persons at one site

Who runs a site, a tenant elsewhere and a program of hers, over TLS. Written by `make record-session`, command after
command against a real server with simulated hosts; a test types them again. `asciinema play
docs/tutorial/three-persons.cast` shows the same as it was typed. To do it yourself:
[try without hardware](../howto/try-without-hardware.md), [run a server](../howto/run-a-server.md). With two hosts that
boot and VMs that run: [three persons and two lab hosts](three-persons-lab.md).
"""
_LAB: Final = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Three persons and two lab hosts

The day of [three persons at one site](three-persons.md), from two machines with GPUs that no server knows yet to the
same two machines given back. Written by `make record-session-lab`: the hosts `t4` and `l40s` of the
[lab](../../lab/README.md), which boot, enrolled over SSH; each VM is a QEMU there with a vGPU that its guest's `lspci`
shows. Both hosts were emulated, one processor each, which is why a guest takes its time to boot.
`asciinema play docs/tutorial/three-persons-lab.cast` shows the same as it was typed.
"""


@dataclass(frozen=True)
class Recording:
    """``name``: of its two files in docs/tutorial; ``head``: how its page begins."""

    name: str
    head: str
    scenes: tuple[Scene, ...]

    @property
    def cast(self) -> Path:
        return ROOT / f"docs/tutorial/{self.name}.cast"

    @property
    def page(self) -> Path:
        return ROOT / f"docs/tutorial/{self.name}.md"

    def write(self, session: Sequence[Said]) -> None:
        self.cast.write_text(cast_of(session, self), encoding="utf-8")
        self.page.write_text(page_of(session, self), encoding="utf-8")


SIMULATED: Final = Recording("three-persons", _SIMULATED, SCENES)


def on_lab_hosts(scenes: tuple[Scene, ...]) -> Recording:
    """How its hosts are reached is in its scenes."""
    return Recording("three-persons-lab", _LAB, scenes)


def cast_of(session: Sequence[Said], recording: Recording) -> str:
    """Lines of JSON: a header, then ``[seconds, "o", text]``."""
    header = {"version": 2, "width": COLUMNS, "height": _LINES, "title": "vgpuctl: three persons at one site"}
    events = [json.dumps([round(at, 2), "o", text], ensure_ascii=False) for at, text in _events(session, recording)]
    return "\n".join([json.dumps(header), *events]) + "\n"


def _events(session: Sequence[Said], recording: Recording) -> Iterator[tuple[float, str]]:
    at, scene = 0.0, -1
    for said in session:
        if said.scene != scene:
            scene = said.scene
            at += _LOOK_S
            yield at, f"\x1b[2J\x1b[H\x1b[1m# {recording.scenes[scene].title}\x1b[0m\r\n\r\n"
        at += _LOOK_S
        yield at, f"{said.person}$ "
        for key in said.command:
            at += _KEY_S
            yield at, key
        yield at, "\r\n"
        for line in said.answer.splitlines():
            at += _LINE_S
            yield at, f"{line}\r\n"


def page_of(session: Sequence[Said], recording: Recording) -> str:
    """Markdown."""
    parts = [recording.head]
    for number, scene in enumerate(recording.scenes):
        parts.append(f"\n## {scene.title}\n")
        for said in (one for one in session if one.scene == number):
            answer = "\n".join(line.rstrip() for line in said.answer.splitlines())
            parts.append(f"\n```text\n{said.person}$ {said.command}\n{answer}".rstrip() + "\n```\n")
    return "".join(parts)


def recorded(cast: Path) -> list[tuple[str, str]]:
    """(``person$ command``, answer) of a recording, as somebody who looks at it sees them."""
    header, *events = cast.read_text(encoding="utf-8").splitlines()
    assert json.loads(header)["version"] == 2
    found: list[tuple[str, str]] = []
    for text in (json.loads(event)[2] for event in events):
        if text.startswith("\x1b[2J"):
            continue
        if text.endswith("$ ") and text[:-2] in _PERSONS:
            found.append((text, ""))
        elif not found[-1][0].endswith("\n"):
            found[-1] = (found[-1][0] + text.replace("\r\n", "\n"), "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + text.replace("\r\n", "\n"))
    return [(command.rstrip("\n"), answer) for command, answer in found]
