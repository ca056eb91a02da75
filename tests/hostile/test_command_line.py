# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.hostile.site import Site, command

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n"
CREATE = ("create-vm", "new", "--profile", "GRID T4-2Q", "--image", "guest")


def _one_line(stderr: bytes, code: str) -> None:
    lines = stderr.decode().splitlines()
    assert lines[0].startswith("error: "), lines
    assert f"[{code}]" in lines[0]
    assert len([line for line in lines if line.startswith("error: ")]) == 1
    assert "Traceback" not in stderr.decode()
    assert "secret" not in stderr.decode()


@pytest.mark.parametrize(
    ("shell", "codes"),
    [
        ('"$@" <&-', {0}),
        ('"$@" >&-', {0}),
        ('"$@" 2>&-', {0}),
        ('"$@" <&- >&- 2>&-', {0}),
        ('"$@" </dev/zero', {0}),
        ('"$@" >/dev/full', {9}),
        ('"$@" | true; exit ${PIPESTATUS[0]}', {0, 141}),
    ],
)
@pytest.mark.parametrize("words", [("list-vms",), ("profile", "list", "-o", "yaml")])
def test_streams_that_are_not_there_are_no_disaster(
    site: Site, shell: str, codes: set[int], words: tuple[str, ...]
) -> None:
    done = command(site.state, *words, shell=shell)
    assert done.returncode in codes, done
    assert b"Traceback" not in done.stderr
    assert b"[bug]" not in done.stderr


def test_with_nobody_at_standard_input_no_key_is_confirmed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "id").write_text(KEY)
    words = ("host", "add", "new", "--address", "l40s.test", "--provisioning-key", str(tmp_path / "id"))
    for shell in ('"$@" <&-', '"$@" </dev/null', 'yes | "$@"'):
        with site.untouched():
            done = command(site.state, *words, shell=shell)
        assert done.returncode == 2, done
        _one_line(done.stderr, "host.key_not_confirmed")


@pytest.mark.parametrize(
    "variables",
    [
        {"COLUMNS": "0"}, {"COLUMNS": "-1"}, {"COLUMNS": "1"}, {"COLUMNS": "\u00b2"}, {"COLUMNS": "9" * 30},
        {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"TERM": ""},
        {"VGPUCTL_CONTEXT": "", "VGPUCTL_TOKEN": "", "VGPUCTL_TOKEN_FILE": ""}, {"HOME": "/nonexistent"},
        {"PYTHONIOENCODING": "ascii"}, {"VGPUCTL_WORKERS": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_strange_environment_changes_nothing_that_is_said(site: Site, variables: dict[str, str]) -> None:
    done = command(site.state, "list-vms", **variables)
    assert done.returncode == 0, done
    assert b"error" not in done.stderr
    assert b"there" in done.stdout or variables.get("COLUMNS") == "1"


@pytest.mark.parametrize("encoded", [b"\xff\xfea\x00", b"\xef\xbb\xbf\xff", b"\x80"])
def test_a_file_that_is_no_text_is_no_user_data(site: Site, tmp_path: Path, encoded: bytes) -> None:
    (tmp_path / "data").write_bytes(encoded)
    with site.untouched():
        done = command(site.state, *CREATE, "--user-data", str(tmp_path / "data"))
    assert done.returncode == 2
    _one_line(done.stderr, "user_data.not_text")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf#cloud-config\n",
        b"#cloud-config\r\nx: 1\r\n",
        b"#!/bin/sh\r\n",
        gzip.compress(b"#!/bin/sh\n", mtime=0),
    ],
)
def test_marks_and_line_ends_of_another_system_and_gzip_are_read(site: Site, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").write_bytes(content)
    with site.untouched():
        done = command(site.state, *CREATE, "--disk", "1GiB", "--user-data", str(tmp_path / "data"), "--dry-run")
    assert done.returncode == 0, done.stderr


def test_user_data_of_100_mb_is_refused_without_being_read_whole(site: Site, tmp_path: Path) -> None:
    with (tmp_path / "data").open("wb") as file:
        file.write(b"#cloud-config\n")
        file.truncate(100 * 10**6)
    with site.untouched():
        done = command(site.state, *CREATE, "--user-data", str(tmp_path / "data"), shell='ulimit -v 900000; "$@"')
    assert done.returncode == 2
    _one_line(done.stderr, "user_data.too_large")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_token_in_a_file_of_others_is_not_used(site: Site, tmp_path: Path, mode: int) -> None:
    (tmp_path / "token").write_text("vgpuctl_secret")
    (tmp_path / "token").chmod(mode)
    done = command(site.state, "list-vms", VGPUCTL_TOKEN_FILE=str(tmp_path / "token"))
    assert done.returncode == 2
    _one_line(done.stderr, "token.exposed")


@pytest.mark.parametrize(
    "words", [("--", "-rf"), ("\x1b[31m",), ("$(id)",), ("show-vm", "\udcff"), ("show-vm", "a\nb"), ("-o", "json", "x")]
)
def test_words_that_are_no_command_are_one_line(site: Site, words: tuple[str, ...]) -> None:
    with site.untouched():
        done = command(site.state, *words)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"error") == 1
