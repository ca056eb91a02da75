# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.guest.settings import (
    MAX_SECRET_BYTES,
    ROLES,
    SECRETS,
    SETTINGS,
    SettingValue,
    check_secrets,
    check_settings,
)

EVERY = tuple(ROLES)


def test_values_have_the_type_that_their_role_wants() -> None:
    wanted: dict[str, SettingValue] = {
        "mps_thread_percentage": "50",
        "mps_memory_mib": 1024,
        "licence_feature": "compute",
    }
    assert check_settings(EVERY, wanted) == {**wanted, "mps_thread_percentage": 50}


@pytest.mark.parametrize("value", [
    "{{ 7 * 7 }}", "{% set x %}", "{{ lookup('pipe', 'id') }}", "0", "101", "-1", "1.5", "", " 50", "５0", True, 0,
])  # fmt: skip
def test_what_is_no_such_number_is_refused_and_a_template_never_is_one(value: SettingValue) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_settings(EVERY, {"mps_thread_percentage": value})
    assert (caught.value.code, caught.value.hint is not None) == ("guest.setting_invalid", True)


@pytest.mark.parametrize(("name", "value", "code"), [
    ("licence_feature", "{{ 'vgpu' }}", "guest.setting_invalid"), ("licence_feature", 1, "guest.setting_invalid"),
    ("licence_featur", "vgpu", "guest.setting_unknown"), ("{{ x }}", "1", "guest.setting_unknown"),
    ("ansible_become", "1", "guest.setting_unknown"),
])  # fmt: skip
def test_other_words_and_names_are_refused(name: str, value: SettingValue, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_settings(EVERY, {name: value})
    assert caught.value.code == code


def test_what_is_said_to_a_role_that_is_not_run_is_refused() -> None:
    for name in SETTINGS:
        with pytest.raises(InvalidInput) as caught:
            check_settings(("guest_check",), {name: "1"})
        assert caught.value.code == "guest.setting_unused"
    with pytest.raises(InvalidInput) as caught:
        check_secrets(("guest_check",), {"licence_token": "x"})
    assert caught.value.code == "guest.setting_unused"


@pytest.mark.parametrize("text", ["", "\n", "a\0b", "x" * (MAX_SECRET_BYTES + 1)])
def test_a_secret_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_secrets(EVERY, {"licence_token": text})
    assert caught.value.code == "guest.secret_invalid"
    assert "xxx" not in str(caught.value)


def test_every_setting_and_secret_is_of_a_role_that_there_is() -> None:
    assert {one.role for one in SETTINGS.values()} | set(SECRETS.values()) <= set(ROLES)
