# SPDX-License-Identifier: Apache-2.0
"""The one error the lab command shows: a line for the person and what to do about it."""

from __future__ import annotations


class LabError(Exception):
    """``message`` says what is wrong, ``hint`` the way out; both are one line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
