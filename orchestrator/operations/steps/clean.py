# SPDX-License-Identifier: Apache-2.0
"""Removing what nobody wants any more from a host. The agent refuses what is not ours or is in use."""

from __future__ import annotations

from orchestrator.core.wire import action_from_dict
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step


def _clean(context: Context) -> str:
    """:raises Conflict: somebody has taken it into use since it was observed"""
    documents = context.inputs.get("actions")
    actions = [action_from_dict(dict(one)) for one in documents] if isinstance(documents, list) else []
    removed = sum(context.perform(action).changed for action in actions)
    return f"{removed} removed"


CLEAN = Step(
    name="clean.1",
    title="remove what is left over",
    do=_clean,
    no_undo_reason="nobody wants it, and it held nothing that could be lost",
)
