# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl-agent serve | version``; ``relay`` has its own short way in (entry.py)."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from orchestrator.agent.paths import CONFIG_FILE, SOCKET_FILE
from orchestrator.core.errors import VgpuctlError


def main(argv: list[str] | None = None) -> int:
    """Exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except VgpuctlError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.details:
            print(error.details, file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vgpuctl-agent", description="What vgpuctl runs on a GPU host.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="answer controllers on a unix socket; run as root by systemd")
    serve.add_argument("--config", type=Path, default=CONFIG_FILE)
    serve.add_argument("--socket", type=Path, default=SOCKET_FILE)
    serve.add_argument("--sysroot", type=Path, default=Path("/"), help="a directory tree to take as the host's /")
    serve.add_argument("--libvirt", default="qemu:///system", metavar="URI")
    serve.set_defaults(run=_serve)
    commands.add_parser("relay", help="forced command of the controller's SSH key: relay [SOCKET]")
    commands.add_parser("version", help="print the agent's version").set_defaults(run=_version)
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    from orchestrator.agent.assembly import assemble, read_config
    from orchestrator.agent.libvirt.guest_agents import GuestAgents
    from orchestrator.agent.server import Server
    from orchestrator.agent.timing import RealTiming

    signal.signal(signal.SIGTERM, _terminate)
    agent = assemble(
        read_config(arguments.config), root=arguments.sysroot, libvirt_uri=arguments.libvirt, timing=RealTiming()
    )
    server = Server(agent, arguments.socket)
    GuestAgents(agent.domains, agent.ledger).thaw_left()
    agent.restorer.start()
    agent.readings.start()
    agent.tunnels.start()
    agent.console_keeper.start()
    try:
        server.serve_forever()
    finally:
        server.close()
        agent.readings.stop()
        agent.tunnels.stop()
        agent.console_keeper.stop()
        agent.restorer.stop()
        agent.performer.finish()
        agent.ledger.close()
    return 0


def _terminate(_signal: int, _frame: object) -> None:
    raise SystemExit(0)


def _version(_arguments: argparse.Namespace) -> int:
    from orchestrator.agent.version import agent_version

    print(agent_version())
    return 0
