# SPDX-License-Identifier: Apache-2.0
"""Clients for programs. They send a request again whose answer was lost, POSTs under a key.

``Client`` is one connection and belongs to one thread; ``AsyncClient`` opens as many as are waited for at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.client.client import Client
from orchestrator.client.contexts import ClientContext, current
from orchestrator.client.location import SOCKET_NAME, state_directory
from orchestrator.client.program import need_extra
from orchestrator.client.token import token_headers

if TYPE_CHECKING:
    from orchestrator.client.generated.async_client import AsyncClient

RETRIES: Final = 3


def open_client(url: str | None = None, *, token_file: str | None = None, ca_file: str | None = None) -> Client:
    """To the server at ``https://HOST:PORT``; without ``url`` to the one that the command line uses here.

    The token is ``VGPUCTL_TOKEN``, else what ``token_file`` or ``VGPUCTL_TOKEN_FILE`` holds. A server of this machine
    is started when none runs.

    :raises VgpuctlError: ``context.…``, ``token.…``, ``server.…``
    """
    chosen = _chosen(url, token_file, ca_file)
    if chosen is not None and chosen.url is not None:
        from orchestrator.client.tls_http import connect_to

        return Client(connect_to(chosen, RETRIES))
    from orchestrator.client.autostart import connect

    return Client(connect(_state(chosen), RETRIES))


def open_async_client(
    url: str | None = None, *, token_file: str | None = None, ca_file: str | None = None
) -> AsyncClient:
    """As :func:`open_client`, for asyncio: ``vgpuctl[async]``. A server of this machine has to run already.

    :raises Fatal: ``program.not_installed``
    """
    need_extra("async")
    from orchestrator.client.async_http import tls_http, unix_http
    from orchestrator.client.generated.async_client import AsyncClient
    from orchestrator.client.generated.async_connection import AsyncConnection

    chosen = _chosen(url, token_file, ca_file)
    if chosen is not None and chosen.url is not None:
        return AsyncClient(AsyncConnection(tls_http(chosen), RETRIES))
    return AsyncClient(AsyncConnection(unix_http(_state(chosen) / SOCKET_NAME, token_headers()), RETRIES))


def _chosen(url: str | None, token_file: str | None, ca_file: str | None) -> ClientContext | None:
    if url is None:
        return current()
    return ClientContext(name="program", url=url, token_file=token_file, ca_file=ca_file)


def _state(chosen: ClientContext | None) -> Path:
    return Path(chosen.state) if chosen is not None and chosen.state is not None else state_directory()
