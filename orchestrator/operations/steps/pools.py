# SPDX-License-Identifier: Apache-2.0
"""A pool is made known: a host that has it mounted writes its id into its directory. Deleting takes the id away."""

from __future__ import annotations

from orchestrator.core.actions.pools import DeclarePool, WithdrawPool
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step


def _name(context: Context) -> str:
    return context.text("pool")


def forget(context: Context) -> None:
    with context.begin() as tx:
        tx.pools.remove(context.subject)


def _stays(context: Context) -> None:
    with context.begin() as tx:
        tx.pools.set_state(context.subject, "ready")


def _declare(context: Context) -> None:
    context.make("id", DeclarePool(name=_name(context), pool_id=context.subject))


def _withdraw_made(context: Context) -> None:
    if context.made("id"):
        _withdraw(context)


def _withdraw(context: Context) -> None:
    context.perform(WithdrawPool(name=_name(context), pool_id=context.subject))


def _ready(context: Context) -> str:
    """With its size, as the host that declared it observes it now."""
    snapshot = context.observe_for_the_end()
    context.write_at_end(lambda tx: tx.pools.set_state(context.subject, "ready"))
    return next((f"{pool.name} on {context.host_name}" for pool in snapshot.pools if pool.name == _name(context)), "")


def _forgotten(context: Context) -> None:
    context.write_at_end(lambda tx: tx.pools.remove(context.subject))


def _id_text(context: Context) -> tuple[str, ...]:
    return (f"the id of pool {_name(context)} in its directory, mounted on host {context.host_name}",)


CREATING = Step(name="pool_creating.1", title="check the state", do=_name, undo=forget)
DECLARE = Step(
    name="declare_pool.1", title="its id in its directory", do=_declare, undo=_withdraw_made, remains=_id_text
)
READY = Step(name="pool_ready.1", title="ready", do=_ready, no_undo_reason="the steps before it take it back")
DELETING = Step(name="pool_deleting.1", title="check the state", do=_name, undo=_stays)
WITHDRAW = Step(name="withdraw_pool.1", title="take its id away", do=_withdraw, undo=_declare, remains=_id_text)
FORGET = Step(
    name="forget_pool.1", title="forget it", do=_forgotten, no_undo_reason="its directory is no pool any more"
)
