# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import text

from orchestrator.store.queue_database import QueueDatabase

LIMIT_S = 120.0
_OTHERS_ASK = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%advisory_lock(%'
"""


def test_who_waits_to_open_the_queue_holds_up_no_index_that_is_made_meanwhile(
    request: pytest.FixtureRequest,
) -> None:
    url = str(request.getfixturevalue("postgres").database())
    first, second, order = QueueDatabase(url), QueueDatabase(url), list[str]()

    def wait() -> None:
        with second.alone():
            order.append("second")

    waiting = threading.Thread(target=wait)
    with first.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE TABLE things (id int)"))
        with first.alone():
            waiting.start()
            deadline = time.monotonic() + LIMIT_S
            while connection.execute(text(_OTHERS_ASK)).scalar_one() < 2:  # the one that has it, and the one that asks
                assert time.monotonic() < deadline
            connection.execute(text(f"SET statement_timeout = '{LIMIT_S:.0f}s'"))
            connection.execute(text("CREATE INDEX CONCURRENTLY ON things (id)"))
            order.append("first")
    waiting.join(LIMIT_S)
    first.close()
    second.close()
    assert order == ["first", "second"]
