# SPDX-License-Identifier: Apache-2.0
"""What people ask for meanwhile, and what must hold when all has settled."""

from __future__ import annotations

import random
import time
from collections import Counter

from orchestrator.client.client import Client
from orchestrator.client.connection import Connection
from orchestrator.client.http import UnixHttp
from orchestrator.client.location import SOCKET_NAME
from orchestrator.core.errors import Bug, VgpuctlError
from tests.chaos.site import Site
from tests.fakes.several import until, wish

SETTLED_S = 240.0
ANSWER_S = 2.0
_NAMES = [f"vm-{number}" for number in range(8)]
_OVER = {"done", "undone"}


class Work:
    """``told``: what people were answered, by code."""

    def __init__(self, site: Site, dice: random.Random) -> None:
        self._site = site
        self._dice = dice
        self.told: Counter[str] = Counter()

    def ask(self) -> None:
        """One request to one server; whatever goes wrong is said in a way that people can use."""
        struck = self._dice.choice([one for one in self._site.struck if one.lives()] or self._site.struck)
        try:
            http = UnixHttp(struck.server.directory / SOCKET_NAME, ANSWER_S)
            http.open()
            self._one_of(Client(Connection(http)))
            http.close()
        except Bug as error:
            raise AssertionError(f"{error.code}: {error.message}; {struck.server.log()[-6000:]}") from error
        except VgpuctlError as error:
            struck.answered = True
            self.told[error.code] += 1
        except OSError:
            self.told[f"no answer: the server {struck.why_silent()}"] += 1
        else:
            struck.answered = True
            self.told["accepted"] += 1

    def _one_of(self, client: Client) -> None:
        name = self._dice.choice(_NAMES)
        match self._dice.randrange(5):
            case 0 | 1:
                client.create_vm(wish(name))
            case 2:
                client.delete_vm(name, "default")
            case 3:
                client.stop_vm(name, "default", force=True)
            case _:
                client.start_vm(name, "default")

    def settle(self) -> None:
        """Nothing is wrong any more: everything ends, and hosts and database say the same."""
        for one in self._site.struck:
            one.mend()
        until(lambda: all(one.up() for one in self._site.struck), "start of all servers")
        deadline, left = time.monotonic() + SETTLED_S, "nothing was seen"
        while True:
            try:
                left = self._left(self._site.struck[0].server.client())
            except (VgpuctlError, OSError) as error:
                left = str(error)
            if not left:
                return
            assert time.monotonic() < deadline, f"{left}\n{self._logs()}"
            time.sleep(0.5)

    def _left(self, client: Client) -> str:
        operations = client.operations(limit=1000)
        going = [f"{one['kind']} {one['id']} is {one['state']}: {one['error']} {one['remainder']}"
                 for one in operations if one["state"] not in _OVER]  # fmt: skip
        if going:
            return "; ".join(going)
        findings = client.observe_findings(None)
        odd = [vm["name"] for vm in client.vms("default") if vm["state"] not in {"running", "stopped"}]
        return "; ".join([*(f"{one['code']} {one['subject']}" for one in findings if not one.get("cleared_at")), *odd])

    def _logs(self) -> str:
        return "\n".join(one.server.log()[-3000:] for one in self._site.struck)
