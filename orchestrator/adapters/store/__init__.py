# SPDX-License-Identifier: Apache-2.0
"""The database behind ports/store: SQLAlchemy on SQLite or PostgreSQL."""
