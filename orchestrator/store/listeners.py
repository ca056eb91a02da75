# SPDX-License-Identifier: Apache-2.0
"""Who in this process wants to hear when an operation has changed: told by the commit, so that nobody has to ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from orchestrator.core.operation import Watched

Notify = Callable[[Watched | None], None]
"""Given the operation as it was committed; None: it has to be read."""

_LATELY: Final = 256
"""Changes that are kept: as many as may be committed between somebody's reading and listening."""


class Listeners:
    """By operation. Safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, list[Notify]] = {}
        self._lately: OrderedDict[str, Watched | None] = OrderedDict()

    def add(self, operation_id: str, told: Notify) -> Callable[[], None]:
        """``told`` is called on the thread that commits, so it may not wait, and at once with what was committed of it
        lately: who has just read it has missed nothing. Calling what is returned ends it."""
        with self._lock:
            self._told.setdefault(operation_id, []).append(told)
            changed, as_it_is = operation_id in self._lately, self._lately.get(operation_id)
        if changed:
            told(as_it_is)

        def leave() -> None:
            with self._lock:
                left = [one for one in self._told.get(operation_id, []) if one is not told]
                if left:
                    self._told[operation_id] = left
                else:
                    self._told.pop(operation_id, None)

        return leave

    def tell(self, changed: Mapping[str, Watched | None]) -> None:
        """These have changed, and everybody can read it."""
        with self._lock:
            for name, as_it_is in changed.items():
                self._lately[name] = as_it_is
                self._lately.move_to_end(name)
            while len(self._lately) > _LATELY:
                self._lately.popitem(last=False)
            told = [(one, as_it_is) for name, as_it_is in changed.items() for one in self._told.get(name, ())]
        for one, as_it_is in told:
            one(as_it_is)
