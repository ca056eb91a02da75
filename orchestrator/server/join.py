# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.server.join``: one more controller for a database that several share.

A token says where a running one is and which certificate it shows. Over that connection the site's key is fetched,
once; everything else that is secret lies encrypted in the database.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from getpass import getpass
from pathlib import Path
from typing import Final

from orchestrator.adapters.controllers.peer_auth import asked
from orchestrator.adapters.state.clock import RandomIds, SystemClock
from orchestrator.adapters.state.directory import ExecutorLock, controller_name
from orchestrator.adapters.state.keys import write_private
from orchestrator.client.location import state_directory
from orchestrator.core.controller import MAX_INVITATION_S, Invitation, read_invitation
from orchestrator.core.errors import Conflict, Denied, InvalidInput, Retryable, VgpuctlError
from orchestrator.core.foreign_json import parse_json
from orchestrator.core.units import parse_duration
from orchestrator.server.error_line import print_error
from orchestrator.server.settings import load_settings
from orchestrator.services.controllers import invite
from orchestrator.store.database import Store
from orchestrator.store.meta import site_at

_OK: Final = 200
_MAX_ANSWER: Final = 64 * 1024
_KEY: Final = Path("secrets") / "database_key"


def invitation(state: Path, lifetime_s: float) -> str:
    """A token from the state directory of a controller that others reach.

    :raises InvalidInput: ``controller.own_database``; :raises Conflict: ``controller.no_address``
    """
    url = _database()
    if not (state / _KEY).exists():
        raise Conflict(
            "controller.no_key",
            f"{state} belongs to no controller",
            hint="run it where a server runs; see VGPUCTL_STATE",
        )
    store = Store(url, key=(state / _KEY).read_bytes().strip(), new_site=RandomIds().new_uuid())
    try:
        return invite(store, SystemClock(), controller_name(state), lifetime_s).text()
    finally:
        store.close()


def join(state: Path, token: str) -> str:
    """Fetch the site's key into ``state``, of which no server has begun yet; returns the site.

    :raises InvalidInput: ``controller.token_invalid``, ``controller.own_database``
    :raises Conflict: ``controller.joined``, ``controller.other_site``; :raises Denied: ``controller.not_invited``
    """
    invited, url = read_invitation(token), _database()
    (state / "secrets").mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = ExecutorLock(state / "executor.lock")
    try:
        if (state / _KEY).exists():
            raise Conflict(
                "controller.joined",
                f"{state} has a key already",
                hint="name the state directory of a new controller with VGPUCTL_STATE",
            )
        known = site_at(url)  # before the token is used up
        site, key = ("", "") if known is None else _fetched(invited)
        if known is None or known != site:
            raise Conflict(
                "controller.other_site",
                "the database of this controller is not the one of the controller that invited it",
                hint="database_url in config.yaml has to name the same database",
            )
        write_private(state / _KEY, key.encode("ascii"))
    finally:
        lock.release()
    return site


def _fetched(invited: Invitation) -> tuple[str, str]:
    body = json.dumps({"id": invited.id, "secret": invited.secret}).encode()
    headers = {"Content-Type": "application/json"}
    with asked(invited.address, invited.certificate, "/controllers/join", headers=headers, body=body) as got:
        return _answer(got)


def _answer(got: http.client.HTTPResponse) -> tuple[str, str]:
    body = got.read(_MAX_ANSWER)
    try:
        parsed = parse_json(body)
    except ValueError:
        parsed = None
    answer = parsed if isinstance(parsed, dict) else {}
    if got.status == _OK and {"site", "key"} <= answer.keys():
        return str(answer["site"]), str(answer["key"])
    code = answer.get("code")
    if code == "controller.not_invited":
        raise Denied(code, str(answer.get("detail")), hint=str(answer.get("hint")))
    raise Retryable(
        "controller.refused",
        f"the controller answers {got.status}",
        hint="is it of the same version?",
        details=str(code),
    )


def _database() -> str:
    url = load_settings().database_server
    if url is None:
        raise InvalidInput(
            "controller.own_database",
            "SQLite has one controller",
            hint="set database_url in config.yaml of the state directory to a PostgreSQL database",
        )
    return url


def main() -> int:
    """Exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="vgpuctl server")
    parser.add_argument("act", choices=["invite", "join"])
    parser.add_argument("lifetime", nargs="?", default="15m")
    words = parser.parse_args()
    state = state_directory()
    try:
        if words.act == "invite":
            print(invitation(state, parse_duration(words.lifetime, field="for", at_most_s=MAX_INVITATION_S)))
        else:
            token = getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
            print(f"{state} is of site {join(state, token.strip())} now; next: 'vgpuctl serve', or start its service")
    except VgpuctlError as error:
        print_error(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
