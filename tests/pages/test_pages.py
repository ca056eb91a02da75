# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md, docs/tutorial and docs/howto is typed, or is in table.py with the reason why not."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import pyrage
import pytest

from tests.fakes.typed import Outcome
from tests.pages.blocks import blocks, commands, inline_commands, python_of, shell_blocks, shows_answers
from tests.pages.person import ROOT, Person
from tests.pages.reading import ours, read, unknown_words
from tests.pages.site import Site, site
from tests.pages.table import TABLE, Page
from tools.tree import files


def says_what_to_type(page: Path) -> bool:
    return bool(commands(page) or python_of(page) or shows_answers(page))


_PAGES = [page.as_posix() for page in files(".md")]
ALL = ["README.md", *(page for page in _PAGES if page.startswith(("docs/howto/", "docs/tutorial/")))]
TYPED = [page for page in ALL if says_what_to_type(ROOT / page)]


@dataclass(frozen=True)
class Reader:
    """Of one page."""

    name: str
    place: Site
    here: Path

    @property
    def page(self) -> Page:
        return TABLE[self.name]

    @property
    def tenant(self) -> str:
        return Path(self.name).stem.lower()

    @property
    def state(self) -> Path:
        return self.here / "own" if self.page.alone else self.place.state

    @cached_property
    def recipient(self) -> str:
        """The public key for backups; who has the other one keeps it in ``key.txt``."""
        key = pyrage.x25519.Identity.generate()
        (self.here / "key.txt").write_text(f"{key}\n")
        return str(key.to_public())

    @property
    def hours(self) -> str:
        """Of a day, which do not begin for long."""
        hour = datetime.now(UTC).hour
        return f"{(hour + 12) % 24:02}:00-{(hour + 13) % 24:02}:00"

    @property
    def soon(self) -> str:
        """In some days."""
        return (datetime.now(UTC) + timedelta(days=5)).strftime("%Y-%m-%dT%H:%MZ")

    def variables(self) -> dict[str, str | None]:
        own = {"VGPUCTL_STATE": str(self.state), "HOME": str(self.here), "XDG_CONFIG_HOME": str(self.here / "config")}
        nowhere = dict.fromkeys(("VGPUCTL_CONTEXT", "VGPUCTL_TOKEN_FILE", "XDG_STATE_HOME", "COLUMNS"))
        soon_idle = {"VGPUCTL_SERVE_IDLE_SECONDS": "60"}
        return {**own, **nowhere, **soon_idle, "VGPUCTL_TENANT": None if self.page.alone else self.tenant}

    def filled(self, text: str) -> str:
        """With this place's words for the page's, the longest first."""
        words = sorted(self.page.words, key=len, reverse=True)
        for number, word in enumerate(words):
            text = text.replace(word, f"\0{number}\0")
        text = text.replace("research", f"{self.tenant}-r")
        for number, word in enumerate(words):
            text = text.replace(f"\0{number}\0", self.page.words[word])
        for name in ("here", "state", "recipient", "soon", "hours"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name))) if f"{{{name}}}" in text else text
        for name in ("url", "files", "operation", "backup", "digest"):
            text = text.replace(f"{{{name}}}", str(getattr(self.place, name))) if f"{{{name}}}" in text else text
        return text.replace("{site}", str(self.place.state)).replace("{root}", str(ROOT))

    def why_elsewhere(self, line: str) -> str | None:
        return next((why for beginning, why in self.page.elsewhere.items() if line.startswith(beginning)), None)

    def exit_of(self, line: str) -> int:
        return next((code for beginning, code in self.page.exits.items() if line.startswith(beginning)), 0)

    def prepare(self, person: Person) -> None:
        """The page's files lie here, and its tenants are there."""
        for file in self.place.files.iterdir():
            shutil.copy(file, self.here)
        for file_name, content in self.page.files.items():
            (self.here / file_name).write_text(content)
        shown = [text for language, text in blocks(ROOT / self.name) if language in {"yaml", "csv"}]
        for file_name, number in self.page.shown.items():
            (self.here / file_name).write_text(self.filled(shown[number]))
        if not self.page.alone:
            makes = "tenant create research" in "\n".join(shell_blocks(ROOT / self.name) + shown)
            for tenant in (self.tenant, *(() if makes else (f"{self.tenant}-r",))):
                if tenant not in {one["name"] for one in self.place.client().tenants()}:
                    self.place.client().create_tenant(tenant)
        for line in self.page.before:
            succeeded(line, person.types(self.filled(line)))

    def type_all(self, person: Person) -> None:
        """What of the page can be typed here."""
        lines = [line for line in commands(ROOT / self.name) if self.why_elsewhere(line) is None]
        program = python_of(ROOT / self.name)
        if self.page.script:
            text, shell = (program, (sys.executable, "-c")) if program else ("\n".join(lines), ("bash", "-euc"))
            said = person.script(self.filled(text), shell)
            succeeded(text, said)
            assert [words for words in self.page.says if words not in said.out] == []
            return
        for line in lines:
            succeeded(line, person.types(self.filled(line)), self.exit_of(line))

    def clear(self, person: Person) -> None:
        """Its VMs make room for the next page's."""
        for line in self.page.after:
            succeeded(line, person.types(self.filled(line)))
        client = self.place.client()
        for vm in client.vms():
            if vm["tenant"] in {self.tenant, f"{self.tenant}-r", "default"}:
                client.wait(client.delete_vm(vm["name"], vm["tenant"]), timeout_s=300)


def succeeded(line: str, said: Outcome, code: int = 0) -> None:
    assert (said.code, "error: " in said.err) == (code, False), f"{line}\n{said.out}\n{said.err}"


def test_every_command_of_a_page_succeeds(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with site(tmp_path / "site") as place:
        for number, name in enumerate(name for name in TYPED if not TABLE[name].typed_by):
            with subtests.test(name):
                _typed(Reader(name, place, tmp_path / str(number)), monkeypatch, capsys)


def _typed(reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        person = Person(reader.here, reader.variables(), patch, capsys)
        reader.prepare(person)
        if reader.page.over_tls:
            person.elsewhere()
        reader.type_all(person)
    with monkeypatch.context() as patch:
        reader.clear(Person(reader.here, reader.variables(), patch, capsys))


@pytest.mark.parametrize("name", TYPED)
def test_every_command_that_is_not_typed_is_one_that_would_be_taken(name: str, tmp_path: Path) -> None:
    page, lines = TABLE[name], commands(ROOT / name)
    assert [
        beginning
        for beginning in (*page.elsewhere, *page.exits)
        if not any(line.startswith(beginning) for line in lines)
    ] == []
    for line in lines:
        for words in ours(line.replace("HOST", "gpu-1")):
            read(words)


def test_the_table_has_every_page_that_says_what_to_type_and_no_other() -> None:
    assert (set(TYPED) - set(TABLE), set(TABLE) - set(TYPED)) == (set(), set())
    assert [page.typed_by for page in TABLE.values() if page.typed_by and not (ROOT / page.typed_by).exists()] == []


@pytest.mark.parametrize("name", _PAGES)
def test_every_command_in_a_sentence_has_the_words_of_ours(name: str) -> None:
    found = [(line, unknown_words(words)) for line in inline_commands(ROOT / name) for words in ours(line)]
    assert [(line, unknown) for line, unknown in found if unknown] == []
