# SPDX-License-Identifier: Apache-2.0
"""What made an operation fail, as the error that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.errors import Bug, Stuck, VgpuctlError, error_from_dict
from orchestrator.core.operation import OUT_OF_REACH


def failure_of(operation: Mapping[str, Any]) -> VgpuctlError:
    """Why it failed: the step, the cause and the way out; for a stuck one what remains and the two ways out."""
    stored = operation["error"]
    cause = error_from_dict(stored) if stored else Bug("operation.failed", "the operation failed without a reason")
    step = next((step["title"] for step in operation["steps"] if step["state"] in {"failed", "undo_failed"}), None)
    message = cause.message if step is None else f"{step}: {cause.message}"
    number = operation["id"]
    if operation["state"] != "stuck":
        hint = f"everything was taken back; 'vgpuctl operation show {number}' tells more"
        return type(cause)(cause.code, message, hint=cause.hint or hint, details=cause.details, reasons=cause.reasons)
    remains = "; ".join(operation["remainder"])
    ways = operation.get("ways_out", ("retry", "abandon"))  # an older server does not name them
    retry = f"'vgpuctl operation retry {number}' tries again"
    if stored and stored.get("stuck_by") in OUT_OF_REACH:
        retry = "it is tried again by itself when the host is back"
    abandon = f"'vgpuctl operation abandon {number}' when you cleaned up by hand"
    return Stuck(
        "operation.stuck",
        f"{message}; it could not be taken back, this remains: {remains}",
        hint=f"{retry}; {abandon}"
        if "abandon" in ways
        else "tell whoever runs this site: an operator decides about it",
        details=cause.details,
        reasons=cause.reasons,
    )
