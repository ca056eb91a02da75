# SPDX-License-Identifier: Apache-2.0
"""A server that lies to the command line: nothing it says becomes a path or is obeyed by the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestrator.cli import complete, guest_access
from orchestrator.cli.main import run
from orchestrator.cli.tree import build
from orchestrator.client.http import HttpAnswer, UnixHttp
from orchestrator.client.shapes import misfit
from tests.fakes.running import client_of, running_server

MEMBERS = ("id", "operation", "name", "state", "host", "why", "domain_xml")
NOWHERE = Path("/vgpuctl-lie")
"""Absolute and not there: a command that obeyed must find nothing to remove."""
LIES = (
    "../../kept",
    str(NOWHERE),
    "a/../../../kept",
    "..",
    ".",
    "\x1b]0;x\x07\x1b[2J",
    "\u202egnp.exe\u2066",
    "a\r\nb\x9b31m",
)
COMMANDS = (
    "create-vm train --profile t4-small --ssh-key {key} --no-wait", "show-vm train", "delete-vm train --no-wait",
    "ssh train", "stop-vm train --no-wait", "start-vm train --no-wait", "extend-vm train --lease 1h", "list-vms",
    "list-vms -o yaml", "list-vms -o json", "list-vms -o csv", "create-vm dry --profile t4-small --dry-run",
    "host list", "host show gpu1", "gpu list", "gpu show gpu1 41:00.0",
    "gpu accept gpu1", "gpu map", "gpu racks", "profile list",
    "profile show t4-small", "image list", "network list", "operation list", "capacity", "explain --profile t4-small",
    "doctor", "tenant list", "token list", "audit list", "server status",
    "events train", "export", "console train --log", "rename-vm train other --no-wait", "restart-vm train --no-wait",
    "vm suspend train --no-wait", "vm resume train --no-wait", "vm discard-suspended train --yes --no-wait",
    "vm move train --no-wait", "vm move train --dry-run",
    "vm resize train --offering t4-4q --no-wait", "vm resize train --offering t4-4q --dry-run",
    "host check gpu1", "host set gpu1 --vcpu-overcommit 4",
    "mig show gpu1", "mig export gpu1", "driver bundle list", "driver lock show",
    "maintenance list", "maintenance show", "network show default", "image show guest", "tenant show default",
    "tenant members default", "quota show default", "policy show", "whoami", "audit verify", "inventory",
    "vm provision train guest_check --no-wait", "operation show 0123abcd", "version",
    "list-vms -o wide", "host list -o wide", "list-vms -o name", "list-vms -o jsonpath=[*].name",
    "vm set train --label a=b", "adopt-vm gpu1 theirs --no-wait", "plan -f {manifest}", "diff -f {manifest}",
    "apply -f {manifest}", "host scan a.test", "host cordon gpu1", "host uncordon gpu1",
    "host upgrade-agent gpu1 --no-wait", "host provision gpu1 --no-wait", "host forget gpu1 --confirm gpu1",
    "host remove gpu1 --yes --no-wait", "mig plan gpu1 -f {mig} --config all",
    "mig apply gpu1 -f {mig} --config all --no-wait", "mig release gpu1 --yes --no-wait", "profile add {offerings}",
    "profile remove notebook", "image guest-driver guest 580.65.06", "image remove guest --yes", "driver check",
    "driver bundle show 0123", "driver bundle remove 0123", "driver lock apply {lock}", "maintenance pause",
    "driver upgrade --to 580.95.05 --dry-run",
    "gpu defragment --dry-run", "gpu defragment",
    "host drain h", "host reboot h", "host evacuate gpu1 --fenced-by-hand --confirm gpu1", "maintenance resume",
    "vm maintenance train --now", "maintenance cancel", "network create n", "network add n --bridge br0",
    "webhook list", "webhook show hook", "webhook create hook --url https://a.test/", "webhook test hook",
    "webhook delete hook --yes", "top hosts", "top gpus", "top vms",
    "network share n", "network unshare n", "network delete n", "volume create v --size 1GiB", "volume list",
    "security-group create g", "security-group list", "security-group show g", "security-group set g --label a=b",
    "security-group rule add g in tcp --port 22", "security-group rule remove g out any",
    "network explain train train 22", "network flows n",
    "security-group apply g --vm train", "security-group withdraw g --network n",
    "security-group delete g --yes", "network address create", "network address list",
    "network address attach 192.0.2.7 train", "network address detach 192.0.2.7",
    "network address delete 192.0.2.7 --yes",
    "volume show v", "volume attach v train --no-wait", "volume detach v train --no-wait",
    "vm resize-disk train --size 20GiB --no-wait",
    "volume resize v --size 2GiB --no-wait", "network attach n train --no-wait", "network detach n train --no-wait",
    "network convert n --yes --no-wait",
    "volume snapshot create v b --no-wait", "volume snapshot list v", "volume snapshot delete v b --yes --no-wait",
    "volume snapshot restore v b --yes --no-wait", "volume create w --from-snapshot v/b --no-wait",
    "volume create w --from-backup 2f1c7c5e/v --no-wait",
    "volume delete v --yes --no-wait", "tenant create red", "tenant set red --isolation gpu",
    "tenant key show red", "tenant key rotate red", "tenant key revoke red --yes",
    "tenant add-member red uid:1 --role tenant-user", "tenant remove-member red uid:1", "tenant delete red --yes",
    "quota list", "quota set default vms=3", "policy list", "policy set default max-lease=8h", "token create --name ci",
    "token show 0123", "token revoke 0123", "audit show 1", "audit export", "operation wait 0123abcd",
    "operation retry 0123abcd", "operation abandon 0123abcd", "operation cancel 0123abcd", "image add more {image}",
    "image create trained --from-snapshot train/before --no-wait",
    "network remove n", "network driver show", "network driver check", "network driver sign {lock} --name gpu1",
    "driver bundle add {image} --signature {image} --key {image}",
    "host add gpu9 --address a.test --provisioning-key {private} --host-key-fingerprint SHA256:a.test --no-wait",
    "backup target create nas", "backup target list", "backup target import nas --no-wait",
    "backup target set nas --max-bytes-per-s 0",
    "backup policy create nightly --vm train",
    "backup policy list", "backup policy show nightly", "backup policy set nightly --all-vms",
    "backup policy delete nightly --yes", "backup target delete nas --yes", "backup list", "backup show 0123",
    "backup run train --no-wait", "backup verify 0123 --no-wait", "backup verify 0123 --boot --no-wait",
    "backup restore train 0123 --yes --no-wait",
    "backup delete 0123 --yes --no-wait", "health show", "health explain gpu1 41:00.0",
    "health quarantine gpu1 41:00.0 --reason x", "health return gpu1 41:00.0 --reason x", "health ack gpu1 41:00.0",
    "health reset-breaker", "health empty gpu1 41:00.0 --no-wait", "gpu cleanings",
    "health reset gpu1 41:00.0 --no-wait", "power show", "power budget 9kW --site", "power cap gpu1 41:00.0 300",
    "pool create p --no-wait", "pool list", "pool show p", "pool delete p --yes --no-wait",
    "status", "image set guest --description x", "network set n --description x", "volume set v --description x",
)  # fmt: skip
FILES = {
    "manifest": "schema_version: 1\nvms:\n  - name: train\n    profile: t4-small\n    image: guest\n",
    "offerings": "schema_version: 1\nofferings:\n  - {name: notebook, kind: time_sliced, vgpu_type: NVIDIA L40S-12Q}\n",
    "mig": "version: v1\nmig-configs:\n  all:\n    - devices: all\n      mig-enabled: false\n",
    "lock": "schema_version: 1\nsite: {}\n",
    "image": "no image",
    "private": "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n",
}
SPARED = re.compile(
    "vm |schema|simulate |completion|vnc$|web$|metrics |serve$|server |login|context |profile validate|host import"
    "|health rules|health replay|backup target secret"
)
"""Another name of a command above; or it asks no server, this one's process, or for one host after the other; or it
waits for a viewer or a browser; or writes a file, which holds nothing else."""
OURS = re.compile(r"\x1b\[[0-9]{1,2}m")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("lies") / "state") as directory:
        yield directory


def _lying(value: Any, lie: str) -> Any:
    """Every text and every name of a member is the lie; what is told apart by its type stays so."""
    if isinstance(value, str):
        return lie
    if isinstance(value, list):
        return [_lying(one, lie) for one in value]
    if isinstance(value, dict):
        return {name: _lying(one, lie) for name, one in value.items()}
    return value


def _liar(
    lie: str, member: str | None, asked: list[str]
) -> Callable[[UnixHttp, str, str, bytes | None, str | None], HttpAnswer]:
    honest = UnixHttp.request

    def request(self: UnixHttp, method: str, target: str, body: bytes | None, key: str | None = None) -> HttpAnswer:
        answer = honest(self, method, target, body, key)
        asked.append(target)
        if target.startswith("/v1/server") or not answer.body:
            return answer  # else the command would only try to replace it
        said = json.loads(answer.body)
        if member is None:
            said = _lying(said, lie)
        elif isinstance(said, dict) and member in said:
            said = said | {member: lie}
        return replace(answer, body=json.dumps(said).encode())

    return request


@pytest.fixture
def with_vm(tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of the test's own that has the VM train, whatever commands other tests gave theirs."""
    with running_server(tmp_path / "own" / "state") as directory:
        monkeypatch.setenv("VGPUCTL_STATE", str(directory))
        run(COMMANDS[0].format(key=key).split())
        assert [vm["name"] for vm in client_of(directory).vms()] == ["train"]
        yield directory


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text("private")
    public = tmp_path / "key.pub"
    public.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl x\n")
    return public


@pytest.fixture
def told(
    state: Path, tell: Callable[[str, str, str | None], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, str | None], str]:
    """At the server that all tests of the file share."""
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    return tell


@pytest.fixture
def tell(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str, str | None], str]:
    """Runs a command against the liar; everything that reached the terminal."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(guest_access, "become", lambda arguments, chosen: print(*map(ascii, arguments)))

    def lied(words: str, lie: str, member: str | None) -> str:
        with monkeypatch.context() as patch:
            asked: list[str] = []
            patch.setattr(UnixHttp, "request", _liar(lie, member, asked))
            try:
                run(words.format(key=key, **{name: tmp_path / name for name in FILES}).split())
            except (KeyError, TypeError, ValueError, AttributeError):
                # What a lie breaks is a bug's line with a number: the lie goes into a log.
                if not asked:
                    raise
        assert asked, "nobody was lied to"
        said = capsys.readouterr()
        return said.out + said.err

    return lied


def test_every_command_that_a_server_answers_is_lied_to() -> None:
    page = Path("docs/reference/cli.md").read_text()
    named = (
        " ".join(word for word in usage.split() if re.fullmatch("[a-z-]+", word))
        for usage in re.findall(r"^Usage: vgpuctl ([a-z -]+?) \[OPTIONS\](?! COMMAND)", page, re.MULTILINE)
    )
    missing = [name for name in named if not any(f"{words} ".startswith(f"{name} ") for words in COMMANDS)]
    assert [name for name in missing if not SPARED.match(name)] == []


def _files(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.name != "serve.log"}


@pytest.mark.parametrize("words", COMMANDS)
def test_nothing_that_it_says_is_obeyed_by_the_terminal(
    told: Callable[[str, str, str | None], str], words: str
) -> None:
    """Every lie about everything, and one about each member."""
    first = COMMANDS.index(words)
    _obeys_none(told, words, [(lie, None) for lie in LIES])
    _obeys_none(told, words, [(LIES[(first + at) % len(LIES)], member) for at, member in enumerate(MEMBERS)])


@pytest.mark.soak
@pytest.mark.parametrize("words", COMMANDS)
def test_no_lie_about_any_member_is_obeyed_by_the_terminal(
    told: Callable[[str, str, str | None], str], words: str
) -> None:
    _obeys_none(told, words, [(lie, member) for lie in LIES for member in MEMBERS])


def _obeys_none(
    told: Callable[[str, str, str | None], str], words: str, lies: Iterable[tuple[str, str | None]]
) -> None:
    for lie, member in lies:
        said = OURS.sub("", told(words, lie, member))
        assert [line for line in said.split("\n") if not line.isprintable()] == [], (lie, member)


@pytest.mark.parametrize("words", COMMANDS[:4])
def test_no_id_of_its_own_making_becomes_a_path(
    told: Callable[[str, str, str | None], str], state: Path, words: str
) -> None:
    kept = state.parent / "kept"
    kept.mkdir(exist_ok=True)
    (kept / "file").write_text("mine")
    before = _files(state.parent)
    for lie in LIES:
        told(words, lie, "id")
        made = {path for path in _files(state.parent) - before if "cli.log" not in path.name}
        assert (kept / "file").read_text() == "mine"
        assert not NOWHERE.exists()
        assert [path for path in made if path.parent.name != "ssh" and path.parent.parent.name != "ssh"] == []
        assert [path for path in made if not re.fullmatch("ssh|[0-9a-f-]{36}|identity", path.name)] == []


def test_what_it_names_is_not_evaluated_by_a_shell(monkeypatch: pytest.MonkeyPatch, with_vm: Path) -> None:
    typed = typer.Context(build())
    assert complete.vms(typed, "") == ["train"]
    for lie in (*LIES, "$(touch x)", "`id`", "a'b", 'a"b', "a;b", "*", "a\nb"):
        with monkeypatch.context() as patch:
            patch.setattr(UnixHttp, "request", _liar(lie, None, []))
            assert complete.vms(typed, "") == []


SHAPES = (b"null", b"5", b"[{}]", b"{}", b"[5]", b'"x"', b"[[]]", b"[" * 50_000, b"\xff", b'{"operation": 5, "id": []}')
"""None of these answers anything; but an empty list may be a list, and no body the answer of what has none."""


def _other_shape(body: bytes, asked: list[str]) -> Callable[..., HttpAnswer]:
    honest, refused = UnixHttp.request, list[bool]()

    def request(self: UnixHttp, method: str, target: str, data: bytes | None, key: str | None = None) -> HttpAnswer:
        answer = honest(self, method, target, data, key)
        refused.append(answer.status >= 400)
        if target.startswith("/v1/server") or not answer.body or any(refused):  # what is asked then is for a hint
            return answer
        asked.append(target)
        return replace(answer, body=body)

    return request


@pytest.mark.parametrize("words", COMMANDS)
def test_an_answer_of_another_shape_is_one_line_that_says_so(
    state: Path,
    tmp_path: Path,
    key: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
) -> None:
    monkeypatch.setenv("VGPUCTL_STATE", str(state))
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    for shape in SHAPES:
        asked: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(UnixHttp, "request", _other_shape(shape, asked))
            code = run(words.format(key=key, **{name: tmp_path / name for name in FILES}).split())
        said = capsys.readouterr().err
        if asked:
            assert code == 9, (shape, said)
            assert "server.malformed" in said.splitlines()[0]
            assert "[bug]" not in said
        else:
            break


def test_a_member_of_another_type_is_named() -> None:
    vm = json.loads((Path("orchestrator/api/examples.json")).read_text())["Vm"]
    assert misfit(vm, "Vm") is None
    for member, value in vm.items():
        other: object = "5" if isinstance(value, int) or member == "suspended_bytes" else 5
        assert member in str(misfit(vm | {member: other}, "Vm"))
        assert misfit({name: one for name, one in vm.items() if name != member}, "Vm") == f"Vm without {member}"
    assert misfit(vm | {"newer": 5}, "Vm") is None
    assert misfit([vm, vm | {"labels": {"a": 5}}], ["Vm"]) == "labels of Vm: no string"


@pytest.mark.usefixtures("with_vm")
def test_an_id_that_is_none_is_one_clear_error(tell: Callable[[str, str, str | None], str]) -> None:
    assert "[server.malformed]" in tell("delete-vm train --no-wait", "../../kept", "id")
