# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which server a module speaks to: parameters, then the environment, then the file of contexts, as C(vgpuctl) does."""

from __future__ import annotations

import json
import os
import pathlib
import re
import stat

MAX_TOKEN_BYTES = 16 * 1024
URL = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+)(:[0-9]{1,5})?/?")
DEFAULT_PORT = 8443


class ApiError(Exception):
    """A refusal, of the server or before it was asked: its code, one sentence and mostly a way out."""

    def __init__(self, code, message, hint=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def line(self):
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Server:
    """An address over TLS, or a socket of this machine; ``tenant``: the context's, None when it names none."""

    def __init__(self, url=None, socket=None, token=None, ca_file=None, tenant=None):
        self.url = url
        self.socket = socket
        self.token = token
        self.ca_file = ca_file
        self.tenant = tenant


def chosen_server(params, environment=None):
    """:raises ApiError: ``context.…``, ``token.…``"""
    environment = os.environ if environment is None else environment
    context = _context(params, environment)
    token = _token(params, environment, context)
    if context.get("url"):
        ca_file = params["ca_file"] or context.get("ca_file")
        return Server(url=_checked_url(context["url"]), token=token, ca_file=ca_file, tenant=context.get("tenant"))
    state = pathlib.Path(context["state"]) if context.get("state") else _state(environment)
    return Server(socket=str(state / "serve.sock"), token=token, tenant=context.get("tenant"))


def _context(params, environment):
    named = [name for name in ("api_url", "state_dir", "context") if params[name]]
    if len(named) > 1:
        raise ApiError("context.incomplete", f"{' and '.join(named)} each name a server", "give one of them")
    if params["api_url"]:
        return {"url": params["api_url"]}
    if params["state_dir"]:
        return {"state": params["state_dir"]}
    wanted = params["context"] or environment.get("VGPUCTL_CONTEXT")
    if not wanted and environment.get("VGPUCTL_STATE"):
        return {}
    return _stored(wanted, environment)


def _stored(wanted, environment):
    base = environment.get("XDG_CONFIG_HOME")
    file = (pathlib.Path(base) if base else pathlib.Path.home() / ".config") / "vgpuctl" / "contexts.json"
    try:
        data = json.loads(file.read_bytes())
        contexts, current = dict(data["contexts"]), data["current"]
    except FileNotFoundError:
        contexts, current = {}, None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ApiError("context.file_invalid", f"{str(file)!a} does not hold contexts", "add them again") from error
    if wanted and wanted not in contexts:
        raise ApiError("context.unknown", f"there is no context {wanted!a}", "'vgpuctl context list' shows them")
    return contexts.get(wanted or current) or {}


def _state(environment):
    chosen = environment.get("VGPUCTL_STATE")
    if chosen:
        return pathlib.Path(chosen).absolute()
    if os.geteuid() == 0:
        return pathlib.Path("/var/lib/vgpuctl")
    base = environment.get("XDG_STATE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".local" / "state") / "vgpuctl"


def _checked_url(url):
    parts = URL.fullmatch(url)
    if parts is None:
        raise ApiError("context.url_invalid", f"{url!a} is no address of a server", "https://HOST:PORT")
    return f"https://{parts[1]}{parts[2] or ':' + str(DEFAULT_PORT)}"


def _token(params, environment, context):
    if params["api_token"]:
        return _checked_token(params["api_token"], "api_token")
    if params["api_token_file"]:
        return _read_token(params["api_token_file"])
    if environment.get("VGPUCTL_TOKEN"):
        return _checked_token(environment["VGPUCTL_TOKEN"], "VGPUCTL_TOKEN")
    file = environment.get("VGPUCTL_TOKEN_FILE") or context.get("token_file")
    return _read_token(file) if file else None


def _read_token(file):
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not be waited for
    except OSError as error:
        raise ApiError("token.unreadable", f"cannot read {file!a}: {error.strerror}") from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ApiError("token.unreadable", f"{file!a} is not a regular file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ApiError("token.exposed", f"others may use {file!a}", "take their rights: chmod 600")
        return _checked_token(os.read(descriptor, MAX_TOKEN_BYTES).decode("latin-1"), file)
    finally:
        os.close(descriptor)


def _checked_token(text, place):
    """A token goes into a header, where a line break would begin another one."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ApiError("token.malformed", f"there is no token in {place!a}")
    return token
