# SPDX-License-Identifier: Apache-2.0
"""Alembic's entry point: always online, on the connection and in the transaction it is given."""

from __future__ import annotations

from alembic import context

from orchestrator.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
