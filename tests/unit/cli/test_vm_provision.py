# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.cli.commands.vm_provision import checked
from orchestrator.core.errors import InvalidInput


def test_roles_are_run_in_the_order_that_they_need_each_once() -> None:
    assert checked(["guest_check", "guest_driver", "guest_check"], waits=True) == ("guest_driver", "guest_check")
    assert checked(None, waits=False) == ()


@pytest.mark.parametrize(("roles", "waits", "code"), [
    (["guest_driver"], False, "cli.usage"), (["guest_licence"], True, "guest.secret_missing"),
    (["guest_drivers"], True, "guest.role_unknown"),
])  # fmt: skip
def test_what_cannot_be_run_after_creating_is_refused_before_anything_is_made(
    roles: list[str], waits: bool, code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        checked(roles, waits=waits)
    assert caught.value.code == code
