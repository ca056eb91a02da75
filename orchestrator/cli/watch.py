# SPDX-License-Identifier: Apache-2.0
"""``--watch``: a result anew with every event about it until Ctrl-C. Redrawn on a terminal; elsewhere lines of what
changed."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Annotated, Any, Final, Protocol

import typer

from orchestrator.cli.output import PIPE_EXIT, colour, printable, safe_line, show
from orchestrator.cli.session import CliSession, Format
from orchestrator.cli.table import Listing, list_lines, sorted_rows
from orchestrator.client.event_reader import concerns, nouns_asked
from orchestrator.core.errors import Retryable, Unknown

BETWEEN_S: Final = 0.5
"""Between two readings at least: what happens meanwhile is read together."""
TICK_S: Final = 1.0
"""How often a terminal's ages are drawn anew, and it is noticed that nobody reads a pipe any more."""
_FOOT: Final = "Ctrl-C ends"
_LOST: Final = "the server does not answer; it is tried again"

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on showing it, with every change, until Ctrl-C.")]


@dataclass(frozen=True, kw_only=True)
class View:
    """What a command shows at one moment."""

    data: object
    lines: Callable[[], Sequence[str]]
    """For people."""
    names: tuple[str, ...] = ()
    """Of the things in a list, so that it can be said when one is gone."""
    pushed_out: frozenset[str] = frozenset()
    """Names that are not shown any more because the list is long, and only for that."""
    final: bool = False
    """Nothing changes any more."""
    about: frozenset[str] = frozenset()
    """Names and ids: only events about these change it; none: all do."""
    good_s: float | None = None
    """After so many seconds it is read anew though nothing has happened, as no event tells of all that it shows."""


ReadView = Callable[[], View]


def list_view(
    rows: Sequence[Mapping[str, Any]],
    listing: Listing,
    name: Callable[[Mapping[str, Any]], str],
    *,
    good_s: float | None = None,
) -> View:
    """A list, in the order that was asked for."""
    ordered = sorted_rows(rows, listing.columns, listing.sort)
    return View(
        good_s=good_s,
        data=ordered,
        lines=lambda: list_lines(ordered, listing.columns, listing.output, listing.none),
        names=tuple(name(row) for row in ordered),
    )


def show_view(
    session: CliSession, read_view: ReadView, *, watch: bool, nouns: Sequence[str], tenant: str | None = None
) -> None:
    """Print what ``read_view`` finds, with ``watch`` anew whenever something has happened to it, until it is final.

    :param nouns: of what it shows, as of :func:`orchestrator.client.event_reader.concerns`
    :param tenant: whose things alone it shows
    :raises typer.Exit: 141 when the reader went away
    """
    view: View | None = None if watch else read_view()
    if view is not None:
        show(view.data, session.format, view.lines)
        return
    screen, news, read_at = _screen(session.format), _News(session, nouns, tenant), 0.0
    try:
        news.stands()
        while view is None or not view.final:
            time.sleep(max(0.0, read_at + BETWEEN_S - time.monotonic()))
            news.forget()
            read_at = time.monotonic()
            view = _read(read_view, view, screen, news)
            screen.draw(view)
            _until_old(view, screen, news)
    except BrokenPipeError as error:
        raise typer.Exit(PIPE_EXIT) from error


def _read(read_view: ReadView, before: View | None, screen: _Screen, news: _News) -> View:
    """Anew. A server that goes away is waited for as long as the stream of events is opened again."""
    while True:
        try:
            return read_view()
        except (Retryable, Unknown) as error:
            if before is None or not error.code.startswith("server."):
                raise
        news.lost = True
        _until_old(replace(before, good_s=TICK_S), screen, news)


def _until_old(view: View, screen: _Screen, news: _News) -> None:
    """Until something has happened to what is shown, it was good for so long, or it is final.

    :raises BrokenPipeError: nobody reads what is printed any more
    """
    end = math.inf if view.good_s is None else time.monotonic() + view.good_s
    while not view.final and (left_s := end - time.monotonic()) > 0 and not news.comes(view.about, min(left_s, TICK_S)):
        if _nobody_reads():
            raise BrokenPipeError
        screen.draw_old(view, lost=news.lost)


def _nobody_reads() -> bool:
    """The other end of the pipe is closed. Files and terminals have none."""
    try:
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), 0)
        return any(what & select.POLLERR for _, what in waiting.poll(0))
    except (AttributeError, OSError, ValueError):  # no standard output, or none of the operating system's
        return False


class _News:
    """What happens to things of these nouns, from the one stream of events that ``vgpuctl events`` shows, too."""

    def __init__(self, session: CliSession, nouns: Sequence[str], tenant: str | None) -> None:
        self._session, self._nouns, self._tenant = session.sibling(), nouns, tenant
        self._happened: SimpleQueue[Mapping[str, Any] | BaseException | bool] = SimpleQueue()
        self.lost = False
        """The server does not answer."""
        Thread(target=self._follow, daemon=True).start()

    def stands(self) -> None:
        """Wait until nothing can be missed. Raises what the stream does."""
        while not self.comes((), TICK_S):
            pass

    def comes(self, about: Collection[str], limit_s: float) -> bool:
        """Whether something happens to ``about`` (none: anything of the nouns) within so many seconds, or the stream
        was opened. Raises what the stream does."""
        end = time.monotonic() + limit_s
        with suppress(Empty):
            while True:
                event = self._happened.get(timeout=max(0.0, end - time.monotonic()))
                if isinstance(event, BaseException):
                    raise event
                self.lost = event is False
                if event is True or (event and concerns(event, self._nouns, about)):
                    return True
        return False

    def forget(self) -> None:
        """What has happened until now: it is read together. Raises what the stream does."""
        while self.comes((), 0):
            pass

    def _follow(self) -> None:
        try:
            client, nouns = self._session.client, nouns_asked(self._nouns)
            for event in client.events(nouns=nouns, tenant=self._tenant, link=self._happened.put):
                self._happened.put(event)
        except BaseException as error:  # noqa: BLE001 - the command's own thread raises it
            self._happened.put(error)


class _Screen(Protocol):
    def draw(self, view: View) -> None:
        """One that was just read."""

    def draw_old(self, view: View, *, lost: bool) -> None:
        """One that was drawn already. ``lost``: the server does not answer."""


def _screen(output: Format) -> _Screen:
    if output not in {Format.TABLE, Format.WIDE}:
        return _Documents(output=output)
    terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in {None, "", "dumb"}
    return _Terminal() if terminal else _ChangedLines()


@dataclass(kw_only=True)
class _Appended:
    """What was printed stays."""

    lost: bool = False

    def draw_old(self, _: View, *, lost: bool) -> None:
        if lost and not self.lost:
            print(_LOST, file=sys.stderr, flush=True)
        self.lost = lost


@dataclass(kw_only=True)
class _Documents(_Appended):
    """A document for each change: JSON in one line, YAML between dashes."""

    output: Format
    last: object = None

    def draw(self, view: View) -> None:
        if view.data == self.last:
            return
        self.last = view.data
        if self.output is Format.JSON:
            print(json.dumps(view.data), flush=True)
        else:
            print("---")
            show(view.data, self.output, view.lines)


@dataclass(kw_only=True)
class _ChangedLines(_Appended):
    """Lines that were not there before; the first time all."""

    last: View | None = None

    def draw(self, view: View) -> None:
        known = set[str]() if self.last is None else {words for words, _ in _by_words(self.last)}
        for words, line in _by_words(view):
            if words not in known:
                print(line)
        for name in () if self.last is None else self.last.names:
            if name not in view.names and name not in view.pushed_out:
                print(f"gone: {printable(name)}")
        self.last = view
        sys.stdout.flush()


def _by_words(view: View) -> list[tuple[str, str]]:
    """Lines with what they say, however wide columns are, and ages as they are now."""
    return [(" ".join(line.split()), line) for line in map(safe_line, view.lines())]


@dataclass
class _Terminal:
    """Over what was drawn before, as far as the terminal is high."""

    drawn: list[str] = field(default_factory=list)

    def draw(self, view: View) -> None:
        self.draw_old(view, lost=False)

    def draw_old(self, view: View, *, lost: bool) -> None:
        """Ages are as they are now."""
        height = max(2, shutil.get_terminal_size().lines - 2)
        lines = list(map(safe_line, view.lines()))
        if len(lines) > height:
            lines = [*lines[: height - 1], f"… and {len(lines) - height + 1} more lines"]
        if not view.final:
            lines.append(colour(f"{_LOST}; {_FOOT}" if lost else _FOOT, "dim"))
        if lines == self.drawn:
            return
        back = f"\x1b[{len(self.drawn)}A\x1b[J" if self.drawn else ""
        print(back + "\n".join(lines), flush=True)
        self.drawn = lines
