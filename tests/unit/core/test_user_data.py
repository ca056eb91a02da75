# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import gzip
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.user_data import check_ssh_key, plain_user_data
from orchestrator.core.vms.vm import MAX_USER_DATA_BYTES


def blob(kind: str = "ssh-ed25519", content: bytes = b"\0\0\0\x20" + b"k" * 32) -> str:
    return base64.b64encode(struct.pack(">I", len(kind)) + kind.encode() + content).decode()


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "sk-ssh-ed25519@openssh.com"])
def test_public_keys_are_taken_with_their_comment(kind: str) -> None:
    line = f"{kind} {blob(kind)} me@desk and more"
    assert check_ssh_key(line) == line
    assert check_ssh_key(f"{kind} {blob(kind)}") == f"{kind} {blob(kind)}"


@pytest.mark.parametrize(
    "line",
    [
        "", "ssh-ed25519", "ssh-ed25519 !!!!", f"ssh-rsa {blob()}", f"ssh-dss {blob('ssh-dss')}",
        f'command="id" ssh-ed25519 {blob()}', f"restrict,pty ssh-ed25519 {blob()}",
        f"ssh-ed25519 {blob()} a\nssh-ed25519 {blob()} b", f"ssh-ed25519 {blob()} \x1b[31m", f"ssh-ed25519 {blob()}\r",
        f"ssh-ed25519 {blob(content=b'')}", f"ssh-ed25519\t{blob()}", "ssh-ed25519 AA==",
        f"ssh-ed25519 {blob()} " + "x" * 20000,
        f"ssh-ed25519 {blob()} кириллица", "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_anything_but_one_plain_public_key_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_ssh_key(line)
    assert caught.value.code == "ssh_key.invalid"
    assert "\n" not in caught.value.message


@given(st.text(max_size=200))
def test_no_text_breaks_the_check_of_keys(text: str) -> None:
    with suppress(InvalidInput):
        assert "\n" not in check_ssh_key(text)


@pytest.mark.parametrize(
    "text",
    [
        "#cloud-config\nx: 1\n",
        "#cloud-config\r\nx: 1\r\n",
        "#cloud-config # of the team\nx: 1\n",
        "#!/bin/bash\n",
        "## template: jinja\n#cloud-config\n",
        "#ps1_sysnative\r\nWrite-Output ready\r\n",
        "#ps1\nWrite-Output ready\n",
        "rem cmd\r\necho ready\r\n",
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n",
        "Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n",
    ],
)
def test_user_data_that_says_what_it_is_is_taken_as_it_is_and_out_of_gzip(text: str) -> None:
    assert plain_user_data(text) == text
    assert plain_user_data(packed(text)) == text
    assert plain_user_data(base64.encodebytes(gzip.compress(text.encode())).decode()) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "password: x", "#include http://host/x", "## template: other\n#cloud-config",
        "Content-Type: text/plain", "#ps2\n", "remcmd\n",
        "#cloud-config-archive\n", " #cloud-config", packed("password: x"), packed("#cloud-config\n\x00"), "H4sI",
        "H4sIAAAA",
        packed("#cloud-config\n")[:-8], packed("#cloud-config\n") + "AAAA", "H4sI#cloud-config",
        base64.b64encode(gzip.compress(b"#!\xff", mtime=0)).decode(), packed(packed("#!/bin/sh\n")),
        "#cloud-config\n\x00", "#cloud-config\n\ud800", "#cloud-config\n\x1b[2J", "#cloud-boothook\n",
    ],
)  # fmt: skip
def test_other_user_data_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plain_user_data(text)
    assert caught.value.code == "user_data.unsupported"


@pytest.mark.parametrize("before", ["\n", "\r\n\n"])
def test_empty_lines_before_it_are_left_out_as_cloud_init_does(before: str) -> None:
    assert plain_user_data(f"{before}#cloud-config\nx: 1\n") == "#cloud-config\nx: 1\n"
    assert plain_user_data(packed(f"{before}#!/bin/sh\n")) == "#!/bin/sh\n"


@pytest.mark.parametrize("text", ["\ufeff#cloud-config\n", packed("\ufeff#!/bin/sh\n")])
def test_a_byte_order_mark_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match="byte order mark"):
        plain_user_data(text)


def test_user_data_has_a_limit() -> None:
    fits = "#!" + "x" * (MAX_USER_DATA_BYTES - 2)
    assert plain_user_data(fits) == fits
    with pytest.raises(InvalidInput) as caught:
        plain_user_data(fits + "x")
    assert caught.value.code == "user_data.too_large"


@pytest.mark.parametrize("size", [MAX_USER_DATA_BYTES, 32 * 2**20])
def test_what_is_packed_has_the_same_limit(size: int) -> None:
    text = packed("#!" + "x" * (size - 1))
    assert len(text) < MAX_USER_DATA_BYTES
    with pytest.raises(InvalidInput) as caught:
        plain_user_data(text)
    assert caught.value.code == "user_data.too_large"
