# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import pytest

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import VgpuctlError

Action = TypeVar("Action")


class Acting(ABC, Generic[Action]):
    """A part of the agent that does host actions of some kinds."""

    @abstractmethod
    def do(self, action: Action) -> ActionResult: ...

    def refused(self, action: Action, family: type[VgpuctlError], code: str) -> str:
        """What is said of it."""
        with pytest.raises(family) as refused:
            self.do(action)
        assert refused.value.code == code
        return refused.value.message
