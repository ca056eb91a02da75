# SPDX-License-Identifier: Apache-2.0
"""Types the scenes, each person in a directory and with an account of its own, and keeps what was answered."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.typed import PATH, in_shell
from tests.session.scenes import FILES, SCENES, Person, Scene
from tests.session.site import Site

COLUMNS: Final = 100
LIMIT_S: Final = 600
_PUBLIC: Final = "https://pool.example.org:8443"
"""Stands for the site's address in what is kept."""
_VARIES: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{8,}\b|[0-9]+[smhdy]?\b|[0-9]+")
"""Ids, ages, numbers."""


@dataclass(frozen=True)
class Said:
    """A command and its answer, standard error included."""

    scene: int
    person: Person
    command: str
    answer: str
    status: int

    @property
    def shape(self) -> frozenset[str]:
        """How its lines begin, numbers and ids aside: what is to be there whenever it is typed again."""
        heads = (re.split(r"  +|: ", line.strip(), maxsplit=1)[0] for line in self.answer.splitlines())
        return frozenset(_VARIES.sub("N", head) for head in heads if head)


def played(site: Site, directory: Path, scenes: Sequence[Scene] = SCENES) -> Iterator[Said]:
    """Command after command. Whoever is elsewhere has files that were handed over, an address, and nothing else."""
    for person, files in FILES.items():
        (directory / person).mkdir()
        for name, content in files.items():
            (directory / person / name).write_text(site.filled(content))
    for name, file in {"pool.pem": site.certificate, **site.files}.items():
        shutil.copy(file, directory / "operator" / name)
    for number, scene in enumerate(scenes):
        _hand_over(scene, directory)
        for command in scene.commands:
            typed = site.filled(command)
            environment = _environment(scene.person, site, directory)
            done = in_shell(typed, directory / scene.person, environment, limit_s=LIMIT_S, together=True)
            shown, answer = (_public(text, site, directory) for text in (typed, done.out))
            yield Said(number, scene.person, shown, answer, done.code)


def _hand_over(scene: Scene, directory: Path) -> None:
    for name in scene.handed:
        shutil.copy(directory / "operator" / name, directory / scene.person / name)


def _environment(person: Person, site: Site, directory: Path) -> dict[str, str]:
    home = directory / person
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VGPUCTL_", "XDG_", "COLUMNS"))}
    own = {"HOME": str(home), "PATH": PATH, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
    return kept | own | ({"VGPUCTL_STATE": str(site.state)} if person == "operator" else {})


def _public(text: str, site: Site, directory: Path) -> str:
    """Without this machine's directories and port."""
    for person in FILES:
        text = text.replace(f"{directory}/{person}", "~")
    return text.replace(site.url, _PUBLIC).replace(str(directory), "~")
