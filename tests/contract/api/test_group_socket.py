# SPDX-License-Identifier: Apache-2.0
"""Users of this machine at a server's socket for a group: real processes under other uids."""

from __future__ import annotations

import grp
import json
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.listening import group_socket_of
from orchestrator.client.location import SOCKET_NAME
from orchestrator.core.errors import InvalidInput
from tests.contract.api.conftest import sender
from tests.fakes.running import running_server

GROUP = "users"
GID = grp.getgrnam(GROUP).gr_gid
ANNA, NOBODY_HERE, OUTSIDE = 64711, 64712, 64713
ASK = """
import json, socket, sys
path, target = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as ear:
    ear.settimeout(60)
    try:
        ear.connect(path)
    except OSError as error:
        sys.exit(print(json.dumps([type(error).__name__, None])))
    ear.sendall(f"GET {target} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n".encode())
    answer = b""
    while chunk := ear.recv(65536):
        answer += chunk
head, _, body = answer.partition(b"\\r\\n\\r\\n")
print(json.dumps([int(head.split()[1]), json.loads(body)]))
"""


@dataclass(frozen=True)
class Place:
    state: Path
    door: Path

    def ask(self, uid: int, target: str, *, groups: Sequence[int] = (GID,), path: Path | None = None) -> Any:
        """Status and answer, or the name of the error that kept the user out."""
        done = subprocess.run(
            ["/usr/bin/python3", "-c", ASK, str(path or self.door / SOCKET_NAME), target],
            user=uid, group=65534, extra_groups=list(groups), cwd="/", env={}, capture_output=True, check=True,
            timeout=120,
        )  # fmt: skip
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    top = Path(tempfile.mkdtemp(prefix="vgpuctl-group-"))
    top.chmod(0o711)
    made = Place(top / "state", top / "run")
    arguments = (f"--socket-directory={made.door}", f"--socket-group={GROUP}")
    with running_server(made.state, *arguments, module="orchestrator.server.serve", timeout_s=300):
        send = sender(made.state)
        for tenant in ("research", "others"):
            assert send("POST", "/v1/tenants", {"name": tenant}).status == 201
        member = {"subject": f"uid:{ANNA}", "role": "tenant-user"}
        assert send("PUT", "/v1/tenants/research/members", member).status == 204
        yield made
    assert not (made.door / SOCKET_NAME).exists()
    shutil.rmtree(top)


def test_a_member_in_the_group_sees_the_tenant_and_no_other(place: Place) -> None:
    status, tenants = place.ask(ANNA, "/v1/tenants")
    assert (status, [one["name"] for one in tenants]) == (200, ["research"])
    assert place.ask(ANNA, "/v1/vms?tenant=research") == [200, []]
    assert place.ask(ANNA, "/v1/tenants/others")[0] == 404
    assert place.ask(ANNA, "/v1/hosts")[0] == 403


def test_the_group_alone_makes_nobody_a_member(place: Place) -> None:
    status, problem = place.ask(NOBODY_HERE, "/v1/vms")
    assert (status, problem["code"]) == (403, "peer.denied")


def test_who_is_not_in_the_group_does_not_come_in_and_nobody_comes_near_the_state(place: Place) -> None:
    for uid, groups in ((OUTSIDE, ()), (ANNA, ())):
        assert place.ask(uid, "/v1/vms", groups=groups) == ["PermissionError", None]
    assert place.ask(ANNA, "/v1/vms", path=place.state / SOCKET_NAME) == ["PermissionError", None]


def test_modes_are_as_narrow_as_that_allows(place: Place) -> None:
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (place.door, place.door / SOCKET_NAME)}
    assert list(modes.values()) == [0o710, 0o660]
    assert {path.stat().st_gid for path in modes} == {GID}
    assert stat.S_IMODE((place.state / SOCKET_NAME).stat().st_mode) == 0o600


def _writable(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def _foreign(path: Path) -> None:
    path.mkdir(mode=0o755)
    shutil.chown(path, user=ANNA)


def _file(path: Path) -> None:
    path.write_text("")


@pytest.mark.parametrize(
    ("make", "group"),
    [(_writable, GROUP), (_foreign, GROUP), (_file, GROUP), (None, "no-such-group"), (None, "-1"), (None, "9" * 30),
     (None, ""), (None, "a\x00b")],
)  # fmt: skip
def test_a_directory_that_is_not_safe_or_a_group_that_is_none_is_refused(tmp_path: Path, make: Any, group: str) -> None:
    if make is not None:
        make(tmp_path / "run")
    with pytest.raises(InvalidInput) as caught:
        group_socket_of(tmp_path / "run", group)
    assert caught.value.code == "serve.group_socket"


def test_one_setting_without_the_other_is_refused(tmp_path: Path) -> None:
    assert group_socket_of(None, None) is None
    for directory, group in ((tmp_path, None), (None, GROUP)):
        with pytest.raises(InvalidInput):
            group_socket_of(directory, group)
