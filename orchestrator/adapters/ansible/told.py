# SPDX-License-Identifier: Apache-2.0
"""What a run tells of itself, line by line (inside.py). Machines have a say in it, so that nothing of it is believed:
it is bounded before it is parsed, and has no control characters when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from orchestrator.adapters.ansible.outcome import Failure, RunReport, TaskEnd

MAX_LINE_BYTES: Final = 512 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of all lines of a run together."""

Title = Annotated[str, Field(max_length=310)]
Text = Annotated[str, Field(max_length=4100)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ended(_Told):
    role: Title
    task: Title
    changed: bool
    failed: bool


class _Failed(_Told):
    kind: Literal["unreachable", "failed"]
    task: Title
    message: Text
    output: Text


class Record(_Told):
    """One line. ``begins``: the title of a task. ``good``: in the end no task had failed that nobody rescued."""

    begun: bool = False
    begins: Title | None = None
    ended: _Ended | None = None
    returned: dict[str, JsonValue] = {}
    failure: _Failed | None = None
    good: bool = False
    done: tuple[Title, ...] | None = None
    output: str = ""
    status: Title | None = None
    return_code: int | None = None


def plain(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text.replace("\r\n", "\n"))


def _plain_value(value: JsonValue) -> JsonValue:
    """Deeper than the parser lets through it never is."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {plain(name): _plain_value(item) for name, item in value.items()}
    return value


@dataclass
class Told:
    """All that a run has told so far; ``progress`` gets the title of each task as it begins."""

    progress: Callable[[str], None]
    begun: bool = False
    failure: Failure | None = None
    done: tuple[str, ...] = ()
    status: str | None = None
    return_code: int | None = None
    output: list[str] = field(default_factory=list)
    returned: dict[str, object] = field(default_factory=dict)
    tasks: list[TaskEnd] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """A line that is no record is what a program printed that went wrong."""
        try:
            self._follow(Record.model_validate_json(line))
        except ValidationError:
            self.output.append(plain(line.decode("utf-8", "replace")))

    def _follow(self, record: Record) -> None:
        self.begun = self.begun or record.begun
        if record.begins is not None:
            self.progress(plain(record.begins))
        if record.ended is not None:
            ended = {name: plain(text) for name, text in record.ended.model_dump(include={"role", "task"}).items()}
            self.tasks.append(TaskEnd(**ended, changed=record.ended.changed, failed=record.ended.failed))
        self.returned.update({name: _plain_value(value) for name, value in record.returned.items()})
        if record.failure is not None:
            words = {name: plain(text) for name, text in record.failure.model_dump(exclude={"kind"}).items()}
            self.failure = Failure(kind=record.failure.kind, **words)
        if record.good:
            self.failure = None
        if record.done is not None:
            self.done = tuple(plain(name) for name in record.done)
        if record.output:
            self.output.append(plain(record.output))
        if record.status is not None:
            self.status, self.return_code = plain(record.status), record.return_code

    def report(self, status: str | None, return_code: int | None) -> RunReport:
        """``status``: why the run was ended; None: it ended by itself. ``return_code``: of the process."""
        return RunReport(
            status=status or self.status or "died",
            return_code=self.return_code if self.status is not None else return_code,
            failure=self.failure,
            hosts_done=self.done,
            output="\n".join(self.output),
            returned=self.returned,
            tasks=tuple(self.tasks),
        )
