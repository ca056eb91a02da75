# SPDX-License-Identifier: Apache-2.0
"""Commands in a guest whose ssh server is real, through a server over TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.isvctl.guest import in_guest, uptime_s
from integrations.isvctl.site import Site, Unmet
from tests.fakes.certificate import over_tls
from tests.fakes.loopback_guest import guest_on_loopback
from tests.fakes.running import client_of, running_server


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    tls, token = over_tls(tmp_path), tmp_path / "admin.token"
    token.touch(mode=0o600)
    made = Site(tls.url, tls.certificate, token, tmp_path, "guest", "t4-small", "", {"ISV_GUESTS": "real"})
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "home").mkdir()
    with (
        pytest.MonkeyPatch.context() as patch,
        guest_on_loopback(tmp_path / "home", made.ssh_key()[0].with_suffix(".pub")) as port,
        running_server(
            tmp_path / "state", "--tls", tls.listen, str(tls.certificate), str(tls.key), "--guest-port", str(port)
        ) as state,
    ):
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        token.write_text(client_of(state).create_token({"tenant": "*", "role": "admin"})["token"])
        made.admin.wait(made.admin.create_vm({"name": "train", "profile": "t4-small", "image": "guest"}))
        yield made


def test_a_command_is_run_in_the_guest_and_its_failure_is_told(site: Site) -> None:
    assert in_guest(site, "train", "default", "echo kept > sentinel && cat sentinel") == "kept\n"
    assert (site.work / "home/sentinel").read_text() == "kept\n"
    assert uptime_s(site, "train", "default") > 0
    with pytest.raises(Unmet, match=r"in the guest: cat: .*No such file"):
        in_guest(site, "train", "default", "cat nothing")
    assert site.token_file.read_text() not in (site.work / "config/vgpuctl/contexts.json").read_text()


def test_nothing_is_run_where_guests_are_not_real(tmp_path: Path) -> None:
    nowhere = Site("https://127.0.0.1:1", tmp_path, tmp_path, tmp_path, "", "", "", {})
    with pytest.raises(Unmet, match="simulated"):
        in_guest(nowhere, "train", "default", "true")
