# SPDX-License-Identifier: Apache-2.0
"""The one catalogue of errors. The class decides HTTP status, exit code and whether a retry makes sense.

Every error carries a stable dotted ``code`` (``gpu.no_capacity``), one line for the user (``message``),
what to do about it (``hint``), what an operator needs (``details``), and reasons as data (``reasons``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Final


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why something was refused for one group of hosts, GPUs or fields."""

    code: str
    """Stable dotted code; docs/reference/errors.md lists them."""
    message: str
    """One sentence for people."""
    subjects: tuple[str, ...] = ()
    """Names of the hosts, GPU addresses or fields this reason is about; may be shortened for tenants."""
    count: int = 1
    """How many subjects there are, also those not named."""


class VgpuctlError(Exception):
    """Base of all errors that are shown to people. Raise one of the families below, never this."""

    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 70
    family: ClassVar[str] = "bug"
    of_host = False
    """Whether a host said it: then its words are the host's, and may name what is there."""
    at_host: str | None = None
    """Name of the host that it is about, where that is not the one that its operation is on."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: str | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details
        self.reasons = reasons


class InvalidInput(VgpuctlError):
    """The request itself is wrong; the same request will never work."""

    http_status, exit_code, family = 400, 2, "invalid_input"


class NotFound(VgpuctlError):
    """A name of nothing, or of nothing that the caller may know of (the two look the same), wherever it stands."""

    http_status, exit_code, family = 404, 4, "not_found"


class Conflict(VgpuctlError):
    """The object exists with another specification or is in a state that forbids this."""

    http_status, exit_code, family = 409, 5, "conflict"


class Denied(VgpuctlError):
    """The caller is known and may not do this."""

    http_status, exit_code, family = 403, 6, "denied"


class QuotaExceeded(VgpuctlError):
    """The tenant's quota does not cover the request."""

    http_status, exit_code, family = 403, 7, "quota_exceeded"


class NoCapacity(VgpuctlError):
    """Nothing free fits; ``reasons`` says why, a reason per group of hosts or GPUs."""

    http_status, exit_code, family = 507, 8, "no_capacity"
    told: Reason | None = None
    """What a tenant may know of it: nothing about others; None: no more than that there is no place."""


QUEUE_LOST = "store.queue_lost"
DATABASE_AWAY = frozenset(
    {"store.unavailable", "store.damaged", "store.connection_lost", "store.busy", "store.queue", QUEUE_LOST}
)
"""Our own database did not do what was asked: no host and no request is to blame, and all waits for it."""


class WorldError(VgpuctlError):
    """A host, libvirt, the driver or the network did not do what was asked. Raise a subclass."""

    http_status, exit_code, family = 502, 9, "world"


class Retryable(WorldError):
    """Nothing was changed and a later try may work (EBUSY, connection refused)."""

    family = "world_retryable"


class Fatal(WorldError):
    """Nothing was changed and trying again will not help (EIO, bad XML)."""

    family = "world_fatal"


class Unknown(WorldError):
    """The answer was lost: the change may or may not have happened. Read the host, then decide."""

    family = "world_unknown"


class Stuck(VgpuctlError):
    """An operation could not be undone; resources stay claimed until an operator decides."""

    http_status, exit_code, family = 500, 10, "stuck"


class Bug(VgpuctlError):
    """A state this code says cannot be."""


FAMILIES: dict[str, type[VgpuctlError]] = {
    cls.family: cls
    for cls in (
        InvalidInput, NotFound, Conflict, Denied, QuotaExceeded, NoCapacity,
        WorldError, Retryable, Fatal, Unknown, Stuck, Bug,
    )
}  # fmt: skip


def error_to_dict(error: VgpuctlError) -> dict[str, object]:
    """The error as plain JSON, for the wire and the database."""
    return {
        "family": error.family,
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "details": error.details,
        "reasons": [
            {"code": r.code, "message": r.message, "subjects": list(r.subjects), "count": r.count}
            for r in error.reasons
        ],
        **({"of_host": True} if error.of_host else {}),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _reason_from_dict(data: object) -> Reason:
    if not isinstance(data, dict):
        return Reason(code="error.malformed", message=str(data))
    subjects = data.get("subjects")
    count = data.get("count")
    return Reason(
        code=str(data.get("code", "error.malformed")),
        message=str(data.get("message", "")),
        subjects=tuple(str(s) for s in subjects) if isinstance(subjects, list) else (),
        count=count if isinstance(count, int) else 1,
    )


def error_from_dict(data: dict[str, object]) -> VgpuctlError:
    """The inverse of :func:`error_to_dict`; an unknown family becomes :class:`Bug`."""
    cls = FAMILIES.get(str(data.get("family")), Bug)
    reasons = data.get("reasons")
    error = cls(
        str(data.get("code", "error.malformed")),
        str(data.get("message", "malformed error")),
        hint=_text(data.get("hint")),
        details=_text(data.get("details")),
        reasons=tuple(_reason_from_dict(r) for r in reasons) if isinstance(reasons, list) else (),
    )
    error.of_host = data.get("of_host") is True
    return error


_WORDS: Mapping[type[Exception], str] = {
    FileNotFoundError: "there is no such file",
    NotADirectoryError: "a part of its path is no directory",
    IsADirectoryError: "it is a directory",
    PermissionError: "its permissions do not allow it",
    UnicodeDecodeError: "it is not UTF-8 text",
}


def why_unwritable(error: OSError | ValueError) -> str:
    """What making a file was answered with."""
    if isinstance(error, FileNotFoundError):
        return "there is no such directory"
    return "it exists already" if isinstance(error, FileExistsError) else why_unreadable(error)


def why_unreadable(error: OSError | ValueError) -> str:
    """What opening or decoding a file was answered with. A ``ValueError`` is what the path itself is refused with."""
    known = next((words for kind, words in _WORDS.items() if isinstance(error, kind)), None)
    if known is not None:
        return known
    if isinstance(error, OSError):
        return (error.strerror or "it cannot be opened").lower()
    return "its name is none that a file can have"


@contextmanager
def naming(host: str) -> Iterator[None]:
    """What the host of that name answers, or does not answer, is told as its own: another one takes part."""
    try:
        yield
    except VgpuctlError as error:
        if error.at_host is None and (error.of_host or isinstance(error, WorldError)):
            error.at_host = host
            if host not in error.message:
                error.message = f"host {host}: {error.message}"
        raise


_CODE: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", re.ASCII)
_CODE_CHARACTERS: Final = 60
_LINE: Final = 300
_DETAILS: Final = 4000
_REASONS: Final = 20
_HOST: Final = "HOST"
"""An agent does not know what its host is called: commands in its hints have this instead."""


def one_line(text: str, most: int = _LINE) -> str:
    """Printable, in one line, at most so many characters."""
    cut = text[: most + 1]
    shown = cut if cut.isprintable() else "".join(letter if letter.isprintable() else " " for letter in cut)
    return shown if len(cut) <= most else f"{shown[: most - 1]}…"


def agent_error(data: dict[str, object], host: str = _HOST) -> VgpuctlError:
    """What an agent answered instead of a result. ``host``: the name that takes the place of HOST in its hint."""
    reported = error_from_dict(data)
    if len(reported.code) > _CODE_CHARACTERS or _CODE.fullmatch(reported.code) is None:
        return Unknown("agent.protocol", "the agent sent an error without a code", details=one_line(reported.code))
    error = type(reported)(
        reported.code,
        one_line(reported.message),
        hint=None if reported.hint is None else one_line(re.sub(rf"\b{_HOST}\b", host, reported.hint)),
        details=None if reported.details is None else one_line(reported.details, _DETAILS),
        reasons=tuple(_reason(reason) for reason in reported.reasons[:_REASONS]),
    )
    error.of_host = True
    return error


def _reason(reason: Reason) -> Reason:
    subjects = tuple(one_line(subject) for subject in reason.subjects[:_REASONS])
    return replace(
        reason, code=one_line(reason.code, _CODE_CHARACTERS), message=one_line(reason.message), subjects=subjects
    )
