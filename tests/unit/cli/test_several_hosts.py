# SPDX-License-Identifier: Apache-2.0
"""Many hosts by one command, picked as VMs are: by name, by pattern and by label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import client_of, running_server
from tests.fakes.typed import Cli
from tests.fakes.world import FINGERPRINT

NAMES = ("gpu2", "gpu3", "big1")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        client = client_of(directory)
        for name in NAMES:
            wanted = {"name": name, "address": "192.0.2.2", "port": 22, "user": "root", "gpus": "unused"}
            more = {"provisioning_key": "key", "take_over": False, "fingerprint": FINGERPRINT}
            client.wait(client.add_host({**wanted, **more}))
        yield directory


@pytest.fixture(autouse=True)
def racked(cli: Cli) -> Iterator[None]:
    assert cli("host", "set", "gpu2", "big1", "--label", "rack=3").code == 0
    yield
    assert cli("host", "uncordon", "*", "--yes").code == 0
    assert cli("host", "set", "*", "--unlabel", "rack", "--unlabel", "new", "--yes").code == 0


def cordoned(cli: Cli) -> set[str]:
    return set(cli("host", "list", "--state", "cordoned", "-o", "name").out.split()) & {*NAMES, "gpu1"}


def test_hosts_are_picked_by_name_by_pattern_and_by_label(cli: Cli) -> None:
    assert cli("host", "list", "-l", "rack=3", "-o", "name").out.split() == ["big1", "gpu2"]
    done = cli("host", "cordon", "gpu3", "big1")
    assert done.out == "gpu3 is cordoned\nbig1 is cordoned\n"
    assert cordoned(cli) == {"gpu3", "big1"}
    assert cli("host", "uncordon", "*", "--yes", "-o", "name").out.split() == ["big1", "gpu1", "gpu2", "gpu3"]
    assert cordoned(cli) == set()
    assert cli("host", "cordon", "gpu?", "-l", "rack=3", "--yes").out == "gpu2 is cordoned\n"
    assert cordoned(cli) == {"gpu2"}


def test_hosts_are_set_together_and_one_alone_is_shown(cli: Cli) -> None:
    assert cli("host", "set", "-l", "rack=3", "--label", "new=1", "--yes").out == "big1 is set\ngpu2 is set\n"
    assert cli("host", "list", "-l", "new=1", "-o", "name").out.split() == ["big1", "gpu2"]
    assert "rack=3" in cli("host", "set", "gpu2", "--label", "new=2").out


@pytest.mark.parametrize(
    "words",
    ["cordon gpu*", "uncordon -l rack=3", "set * --label new=1", "upgrade-agent gpu*", "provision -l rack=3"],
)
def test_hosts_that_nobody_named_one_by_one_are_not_changed_unasked(cli: Cli, words: str) -> None:
    before = cli("host", "list", "-o", "json").out
    refused = cli("host", *words.split())
    assert (refused.code, refused.out) == (2, "")
    assert "[cli.not_confirmed]" in refused.err
    assert "gpu2" in refused.err
    assert cli("host", "list", "-o", "json").out == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("cordon nothing-* --yes", "cli.nothing_picked"),
        ("set -l rack=9 --label new=1 --yes", "cli.nothing_picked"),
        ("cordon", "cli.usage"),
        ("uncordon -l a==b", "label.selector_invalid"),
        ("cordon Bad_Name", "host.name_invalid"),
    ],
)
def test_what_picks_no_host_is_refused_and_changes_nothing(cli: Cli, words: str, code: str) -> None:
    refused = cli("host", *words.split())
    assert refused.code in {2, 4}
    assert f"[{code}]" in refused.err
    assert cordoned(cli) == set()


def test_one_of_several_that_fails_is_named_and_the_others_are_done(cli: Cli) -> None:
    partly = cli("host", "cordon", "gpu2", "absent", "gpu3")
    assert (partly.code, partly.out) == (4, "gpu2 is cordoned\ngpu3 is cordoned\n")
    assert "1 of 3 hosts could not be done [host.partial]" in partly.err
    assert "absent" in partly.err
    assert cordoned(cli) == {"gpu2", "gpu3"}
    assert "[host.unknown]" in cli("host", "cordon", "absent").err


def test_each_host_whose_provisioning_cannot_be_planned_is_named(cli: Cli) -> None:
    refused = cli("host", "provision", "gpu2", "absent", "--dry-run")
    assert "2 of 2 hosts could not be done [host.partial]" in refused.err
    assert ("gpu2" in refused.err, "absent" in refused.err) == (True, True)


def test_the_only_host_that_is_refused_its_driver_has_the_code_of_that(cli: Cli) -> None:
    refused = cli("host", "provision", "absent", "--yes")
    assert ("[host.unknown]" in refused.err, refused.code) == (True, 4)


def test_hosts_that_are_refused_their_driver_alike_have_the_hint_of_that(cli: Cli) -> None:
    refused = cli("host", "provision", "gpu2", "absent", "--yes")
    assert "2 of 2 hosts did not get their driver" in refused.err
    assert refused.err.endswith("hint: 'vgpuctl host list' shows them\n")
