# SPDX-License-Identifier: Apache-2.0
"""What is done to the site, one strike at a time, drawn by a seed."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable

from sqlalchemy import create_engine, text

from tests.chaos.site import HOSTS, Site, Struck

PAUSE_S = (0.3, 8.0)
"""A server that is stopped for longer than four beats is taken for dead."""


class Strikes:
    """``counts``: by what was done."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site = site
        self._dice = dice
        self._kinds: list[tuple[str, Callable[[Struck], None]]] = [
            ("a server was killed", self._kill),
            ("a server was stopped for a while", self._pause),
            ("a server was stopped inside a read of the database", self._pause_in_read),
            ("the database was restarted", self._restart),
            ("all sessions of the database were cut", self._cut),
            ("the way to the database broke inside an answer", self._half),
            ("answers of hosts were lost", self._lose),
            ("a host could not be reached for a while", self._down),
            ("a wall clock jumped", self._jump),
        ]
        self.counts: Counter[str] = Counter()

    def strike(self) -> None:
        name, act = self._dice.choice(self._kinds)
        alive = [one for one in self._site.struck if one.lives()]
        if not alive:
            self._site.struck[0].revive()
            alive = self._site.struck[:1]
        act(self._dice.choice(alive))
        self.counts[name] += 1

    def _kill(self, struck: Struck) -> None:
        struck.server.kill()
        self._later(struck.revive, self._dice.uniform(0.0, 6.0))

    def _pause(self, struck: Struck) -> None:
        struck.server.signal(signal.SIGSTOP)
        self._later(lambda: self._wake(struck), self._dice.uniform(*PAUSE_S))

    def _pause_in_read(self, struck: Struck) -> None:
        seconds = self._dice.uniform(*PAUSE_S)

        def stop(_answer: bytes) -> None:
            if struck.lives():
                struck.server.signal(signal.SIGSTOP)
                self._later(lambda: self._wake(struck), seconds)

        struck.database.asks = b"SELECT"
        struck.database.on_answer = stop

    def _restart(self, _struck: Struck) -> None:
        self._site.postgres.restart()

    def _cut(self, _struck: Struck) -> None:
        engine = create_engine(self._site.postgres.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )
        engine.dispose()

    def _half(self, struck: Struck) -> None:
        struck.database.asks = self._dice.choice([b"SELECT", b"UPDATE", b"COMMIT"])
        struck.database.on_answer = lambda _answer: struck.database.cut()

    def _lose(self, struck: Struck) -> None:
        struck.hosts.lose = self._dice.randint(1, 3)

    def _down(self, struck: Struck) -> None:
        host = self._dice.choice(HOSTS)
        seen_by = self._dice.choice([[struck], self._site.struck])
        for one in seen_by:
            one.hosts.down.add(host)

        def back() -> None:
            for one in seen_by:
                one.hosts.down.discard(host)

        self._later(back, self._dice.uniform(0.5, 6.0))

    def _jump(self, struck: Struck) -> None:
        struck.ahead.write_text(str(self._dice.choice([-86400, -3600, -30, 30, 3600, 86400])))

    @staticmethod
    def _wake(struck: Struck) -> None:
        if struck.lives():
            struck.server.signal(signal.SIGCONT)

    @staticmethod
    def _later(act: Callable[[], object], seconds: float) -> None:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
