# SPDX-License-Identifier: Apache-2.0
"""What a finding says is to be done on a host: removing what nobody wants any more, and making again what VMs rely on.
The agent refuses what is not ours or is in use."""

from __future__ import annotations

from orchestrator.core.actions.host_actions import DeleteImage, HostAction
from orchestrator.core.wire import action_from_dict
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step


def _clean(context: Context) -> str:
    """:raises Conflict: somebody has taken it into use since it was observed"""
    return f"{_do(context)} removed"


def _mend(context: Context) -> str:
    return f"{_do(context)} made again"


def _do(context: Context) -> int:
    """How many of the repair's actions changed something."""
    documents = context.inputs.get("actions")
    actions = [action_from_dict(dict(one)) for one in documents] if isinstance(documents, list) else []
    return sum(context.perform(action).changed for action in actions if not _is_wanted(context, action))


def _is_wanted(context: Context, action: HostAction) -> bool:
    """An image may have been given a name again since."""
    if not isinstance(action, DeleteImage):
        return False
    with context.world.store.read() as tx:
        return any((one.sha256, one.format) == (action.sha256, action.image_format) for one in tx.images.list())


CLEAN = Step(
    name="clean.1",
    title="remove what is left over",
    do=_clean,
    no_undo_reason="nobody wants it, and it held nothing that could be lost",
)
MEND = Step(
    name="mend.1",
    title="make again what is missing",
    do=_mend,
    no_undo_reason="the host is as it was when VMs came there",
    remains=lambda context: (f"what 'vgpuctl doctor --host {context.host_name}' shows",),
)
