# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cli.commands.vm_provision import Said
from orchestrator.core.errors import InvalidInput


def _said(
    roles: list[str] | None, var: list[str] | None = None, token: Path | None = None, *, none_offered: bool = False
) -> Said:
    return Said.of(roles, none_offered, var, None, token)


def test_roles_of_a_new_vm_are_asked_for_in_the_order_that_they_need_each_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("eyJ")
    asked = _said(["guest_licence", "guest_driver", "guest_licence"], ["licence_feature=vws"], token).asked()
    assert asked == {
        "provision": ["guest_driver", "guest_licence"],
        "provision_settings": {"licence_feature": "vws"},
        "provision_secrets": {"licence_token": "eyJ"},
    }
    assert _said(None).asked() == {}
    assert _said(None, none_offered=True).asked() == {"no_provision": True}


@pytest.mark.parametrize(("roles", "var", "code"), [
    (["guest_drivers"], None, "guest.role_unknown"), (None, ["licence_feature"], "cli.usage"),
    (None, ["exporter_port=9400", "exporter_port=9401"], "cli.usage"),
])  # fmt: skip
def test_what_nobody_can_mean_is_refused_before_a_server_is_asked(
    roles: list[str] | None, var: list[str] | None, code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        _said(roles, var)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "said", [["licence_token="], ["licence_token=FILE", "licence_token=FILE"], ["licence_token=FILE"]]
)
def test_a_secret_is_one_file_that_is_named_once(tmp_path: Path, said: list[str]) -> None:
    token = tmp_path / "token"
    token.write_text("eyJ")
    also = token if len(said) == 1 and "FILE" in said[0] else None
    with pytest.raises(InvalidInput, match="licence_token") as caught:
        Said.of(None, False, None, [one.replace("FILE", str(token)) for one in said], also)
    assert caught.value.code == "cli.usage"
