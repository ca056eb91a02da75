# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules do with a server: ask, wait for an operation, and say what changed."""

from __future__ import annotations

import json
import pathlib
import ssl
import time
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.vgpuctl.cloud.plugins.module_utils.server import ApiError, chosen_server

CALL_LIMIT_S = 60
WAIT_S = 20
"""How long the server holds one question about an operation; less than a call may take."""
MAX_PAGES = 100000
ENDED = ("done", "undone", "stuck")
MADE_BY_TASKS = tuple(f"{kind}.unknown" for kind in ("tenant", "network", "image", "profile", "host", "vm"))
"""Refusals for want of what another task of the play may make."""


def arguments(**own):
    """Those of a module, with what all of them take."""
    common = {
        "api_url": {"type": "str"},
        "api_token": {"type": "str", "no_log": True},
        "api_token_file": {"type": "path", "no_log": False},
        "ca_file": {"type": "path"},
        "context": {"type": "str"},
        "state_dir": {"type": "path"},
        "timeout": {"type": "int", "default": 600},
    }
    return {**common, **own}


def run(own, work, **rules):
    """A module: ``work`` gets a :class:`Site` and gives what is returned; a refusal ends it with one line."""
    module = AnsibleModule(argument_spec=arguments(**own), supports_check_mode=True, **rules)
    try:
        result = work(Site(module))
    except ApiError as error:
        module.fail_json(msg=error.line(), code=error.code, hint=error.hint)
    module.exit_json(**result)


def answer(before, after, **more):
    """What a module returns. ``before`` and ``after``: what is compared, {} for nothing there."""
    return {"changed": before != after, "diff": {"before": before, "after": after}, **more}


def given(params, names):
    """Those that the task gives a value."""
    return {name: params[name] for name in names if params[name] is not None}


def texts(labels):
    """Values as texts, which YAML may have read as numbers; None stays."""
    return {key: value if value is None else str(value) for key, value in (labels or {}).items()}


def merged(there, wanted):
    """Members by key; None takes one away, those that are not named stay."""
    found = {**there, **(wanted or {})}
    return {key: value for key, value in found.items() if value is not None}


def differing(there, wanted):
    """Of a thing that cannot be changed, a text like ``memory_mib is 4096, not 8192``; empty: it is as wanted."""
    return ", ".join(f"{key} is {there.get(key)}, not {value}" for key, value in wanted.items() if there[key] != value)


DESCRIBED = {"description": {"type": "str"}, "labels": {"type": "dict"}}
"""Options of what people say of a thing."""


def with_about(params, there):
    """What is said of the thing, as it shall be; ``there``: as it is, {} for nothing there."""
    description = there.get("description", "") if params["description"] is None else params["description"]
    return {"description": description, "labels": merged(there.get("labels", {}), texts(params["labels"]))}


def describe(site, place, there, **query):
    """The thing as it is when the server has been told what is said of it, where that differs."""
    wanted = with_about(site.params, there)
    if wanted == {key: there[key] for key in wanted}:
        return there
    body = {"labels": texts(site.params["labels"]), **given(site.params, ["description"])}
    return site.patch(*place, body=body, **query)


class Site:
    """A server as a module needs it. Paths are given in parts, each of which is quoted."""

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.check_mode = module.check_mode
        self.server = chosen_server(module.params)
        self.tenant = module.params.get("tenant") or self.server.tenant or "default"

    def get(self, *parts, **query):
        return self._call("GET", parts, query)

    def find(self, code, *parts, **query):
        """None when the server answers with ``code``: there is no such thing, or in check mode not yet."""
        try:
            return self._call("GET", parts, query)
        except ApiError as error:
            if error.code != code:
                self.warn_of_missing(error)
            return None

    def warn_of_missing(self, error):
        """In check mode nothing is made, so what is missing may be what an earlier task would have made.

        :raises ApiError: ``error``: it is not in check mode, or about something else
        """
        if not self.check_mode or error.code not in MADE_BY_TASKS:
            raise error
        self.module.warn(f"{error.message}; with --check an earlier task is trusted to make it")

    def post(self, *parts, body=None, limit_s=CALL_LIMIT_S, **query):
        return self._call("POST", parts, query, body, limit_s)

    def put(self, *parts, body=None, **query):
        return self._call("PUT", parts, query, body)

    def patch(self, *parts, body=None, **query):
        return self._call("PATCH", parts, query, body)

    def delete(self, *parts, unknown=None, **query):
        """None when the server answers with the code ``unknown``: it went since it was looked for, as it was to."""
        try:
            return self._call("DELETE", parts, query)
        except ApiError as error:
            if error.code != unknown:
                raise
            return None

    def send(self, file, *parts, **query):
        """A file as the body."""
        with pathlib.Path(file).open("rb") as stream:
            length = stream.seek(0, 2)
            stream.seek(0)
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(length)}
            return self._ask("PUT", _target(parts, query), stream, headers, self.params["timeout"])[0]

    def all(self, *parts, **query):
        """A whole list, page by page."""
        target, found = _target(parts, query), []
        for _page in range(MAX_PAGES):
            some, headers = self._ask("GET", target, None, {}, CALL_LIMIT_S)
            found += some
            link = headers.get("link") or ""
            if 'rel="next"' not in link:
                break
            following = urlsplit(link.partition("<")[2].partition(">")[0])
            target = f"{following.path}?{following.query}"
        return found

    def wait(self, started):
        """Until the operation of an answer has ended well; None is no operation.

        :raises ApiError: it failed, or goes on after ``timeout``
        """
        number = started["operation"] if isinstance(started, dict) else started
        if number is None:
            return
        end, revision = time.monotonic() + self.params["timeout"], -1
        while True:
            left = end - time.monotonic()
            found = self.get("operations", number, wait=int(max(0, min(WAIT_S, left))), since=revision)
            if found["state"] in ENDED:
                break
            if left <= 0:
                hint = f"'vgpuctl operation wait {number}' waits for it, and so does the same task again"
                seconds = self.params["timeout"]
                raise ApiError("operation.goes_on", f"operation {number} goes on after {seconds} s", hint)
            revision = found["revision"]
        for warning in found["warnings"]:
            self.module.warn(warning)
        if found["state"] != "done":
            raise _failure(found)

    def _call(self, method, parts, query, body=None, limit_s=CALL_LIMIT_S):
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        return self._ask(method, _target(parts, query), data, headers, limit_s)[0]

    def _ask(self, method, target, data, headers, limit_s):
        server = self.server
        if server.token:
            headers = {**headers, "Authorization": f"Bearer {server.token}"}
        try:
            with open_url(
                (server.url or "http://localhost") + target,
                method=method,
                data=data,
                timeout=limit_s,
                headers={**headers, "Accept": "application/json"},
                unix_socket=server.socket,
                ca_path=server.ca_file,
                follow_redirects="none",
                use_proxy=False,
                use_netrc=False,
                http_agent="vgpuctl.cloud",
            ) as answered:
                return _decoded(answered.read()), answered.headers
        except HTTPError as error:
            raise _refusal(error) from error
        except URLError as error:
            place = server.url or server.socket
            code = "server.not_trusted" if isinstance(error.reason, ssl.SSLError) else "server.unreachable"
            raise ApiError(code, f"no answer from {place}: {error.reason}", "look whether it runs there") from error
        except (OSError, HTTPException, ValueError) as error:
            hint = "run it again: what was begun is not begun twice"
            raise ApiError("server.lost", f"the server went away before it answered: {error}", hint) from error


def _target(parts, query):
    """:raises ApiError: ``request.invalid``: with such a part it would be another path, of a list even"""
    for part in parts:
        if str(part) in ("", ".", "..") or "/" in str(part):
            raise ApiError("request.invalid", f"{part!a} is no name", "lower-case letters, digits and '-'")
    path = "/".join(quote(str(part), safe="") for part in parts)
    words = {key: str(value).lower() if isinstance(value, bool) else value for key, value in query.items()}
    words = {key: value for key, value in words.items() if value is not None}
    return f"/v1/{path}" + (f"?{urlencode(words)}" if words else "")


def _decoded(body):
    return json.loads(body) if body else None


def _refusal(error):
    try:
        problem = json.loads(error.read())
        code, message, hint = problem["code"], problem["detail"], problem["hint"]
        reasons = "; ".join(reason["message"] for reason in problem["reasons"])
    except (OSError, ValueError, TypeError, KeyError):
        return ApiError("server.malformed", f"status {error.code} without a reason of vgpuctl's")
    return ApiError(code, f"{message}: {reasons}" if reasons and reasons not in message else message, hint)


def _failure(operation):
    cause = operation["error"] or {"code": "operation.failed", "message": "it failed without a reason", "hint": None}
    failed = [step["title"] for step in operation["steps"] if step["state"] in ("failed", "undo_failed")]
    message = ": ".join([*failed[:1], cause["message"]])
    number = operation["id"]
    if operation["state"] == "stuck":
        remains = "; ".join(operation["remainder"])
        hint = f"'vgpuctl operation show {number}' tells more"
        return ApiError("operation.stuck", f"{message}; it could not be taken back, this remains: {remains}", hint)
    hint = f"everything was taken back; 'vgpuctl operation show {number}' tells more"
    return ApiError(cause["code"], message, cause.get("hint") or hint)
