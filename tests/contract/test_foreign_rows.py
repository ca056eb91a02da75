# SPDX-License-Identifier: Apache-2.0
"""What others put into switches, routers and groups of ours is told and left as it is, until they take it away."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.core.northbound.groups import port_group
from orchestrator.core.ovn import OvnTrouble
from orchestrator.services.network_driver import Engines, NetworkDriverService
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.contract.test_ways_out import create, leading_outside, repair
from tests.fakes.control_plane import ControlPlane, group_on
from tests.fakes.ovn_databases import RealOvn


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    with leading_outside(tmp_path, ovn, MaybeAway(ovn)) as made:
        create(made, "web")
        yield made


def _foreign(plane: ControlPlane) -> tuple[OvnTrouble, ...]:
    return tuple(trouble for trouble in _troubles(plane) if trouble.code == "ovn.foreign_row")


def _troubles(plane: ControlPlane) -> tuple[OvnTrouble, ...]:
    engines = Engines(
        authority=OvnAuthority(Fernet.generate_key(), plane.world.clock), northbound=plane.world.northbound,
        overlay=plane.services.provider_networks.overlay,
    )  # fmt: skip
    driver = NetworkDriverService(store=plane.store, clock=plane.world.clock, engines=engines)
    return driver.get().troubles


def test_rows_that_are_too_many_to_be_compared_are_told_of(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody hears that nothing is put right any more."""
    assert "ovn.not_compared" not in [trouble.code for trouble in _troubles(plane)]
    monkeypatch.setattr("orchestrator.adapters.ovn.northbound._WHOLE_BYTES", 1000)
    (told,) = [trouble for trouble in _troubles(plane) if trouble.code == "ovn.not_compared"]
    assert "more than 0 MiB" in told.message


PUT: Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "a rule of a switch": (
        ("acl-add", "default.blue", "from-lport", "30000", "ip4", "allow"), "default.blue",
        ("ACL is among its acls", "direction from-lport", "match ip4", "action allow"),
    ),
    "a rule of a group": (
        ("--type=port-group", "acl-add", "{group}", "to-lport", "30000", "tcp.dst == 7", "allow"), "{group}",
        ("ACL is among its acls", "match tcp.dst == 7"),
    ),
    "a port": (
        ("lsp-add", "default.blue", "theirs"), "default.blue",
        ("Logical_Switch_Port is among its ports: name theirs",),
    ),
    "a route": (
        ("lr-route-add", "default.blue", "10.7.0.0/16", "10.0.0.9"), "default.blue",
        ("Logical_Router_Static_Route is among its static_routes", "ip_prefix 10.7.0.0/16", "nexthop 10.0.0.9"),
    ),
    "a translation": (
        ("lr-nat-add", "default.blue", "dnat_and_snat", "192.0.2.50", "10.0.0.9"), "default.blue",
        ("NAT is among its nat: type dnat_and_snat, external_ip 192.0.2.50, logical_ip 10.0.0.9",),
    ),
    "a policy": (
        ("lr-policy-add", "default.blue", "10", "ip4.src == 10.0.0.9", "drop"), "default.blue",
        ("Logical_Router_Policy is among its policies",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(PUT))
def test_what_others_put_into_ours_is_told_and_left_and_taken_away_as_it_is_said(
    plane: ControlPlane, ovn: RealOvn, what: str
) -> None:
    group = port_group(*group_on(plane, "default"))
    words, subject, tells = PUT[what]
    ovn.nbctl("ls-add", "elsewhere", "--", "lsp-add", "elsewhere", "its-port")
    assert _foreign(plane) == ()
    ovn.nbctl(*(word.format(group=group) for word in words))
    repair(plane)
    (trouble,) = _foreign(plane)
    assert trouble.subject == subject.format(group=group)
    for text in tells:
        assert text in trouble.message
    _, command, _ = trouble.remedy.split("'")
    ovn.nbctl(*shlex.split(command)[1:])
    assert _foreign(plane) == ()
    repair(plane)
    ovn.nbctl("ls-del", "elsewhere")


def test_of_many_the_first_are_told_by_name(plane: ControlPlane, ovn: RealOvn) -> None:
    for number in range(22):
        ovn.nbctl("acl-add", "default.blue", "from-lport", "30000", f"tcp.dst == {number}", "allow")
    troubles = _foreign(plane)
    assert len(troubles) == 21
    assert troubles[-1].subject == "2 more rows"
