# SPDX-License-Identifier: Apache-2.0
"""The lab command."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.commands import replace_process, run
from lab.driver.bundle import FAILURES, write_bundle
from lab.driver.guest import write_guest_bundle
from lab.driver.signer import sign_file
from lab.errors import LabError
from lab.fleet import BOOT_LIMIT_S, Fleet
from lab.image.base import base
from lab.machine.console import attach
from lab.machine.fault import SWITCHES, fault_command
from lab.places import PROJECT, places
from lab.scenario import DRIVER_VERSION, model_names, read_scenarios

_DEFAULT_SCENARIO = PROJECT / "lab/scenarios/t4.yaml"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _up(fleet: Fleet, options: argparse.Namespace) -> None:
    files = options.scenario or [_DEFAULT_SCENARIO]
    begun = time.monotonic()
    instances = fleet.up(read_scenarios(files, model_names()))
    _say(f"ready in {time.monotonic() - begun:.0f} s: {', '.join(instance.name for instance in instances)}")


def _down(fleet: Fleet, options: argparse.Namespace) -> None:
    fleet.down(options.name)


def _status(fleet: Fleet, options: argparse.Namespace) -> None:
    rows = fleet.status()
    if options.output == "json":
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['name']:16} {row['state']:9} {row['user']}@{row['address']}:{row['port']}  {row['console_log']}")


def _ssh(fleet: Fleet, options: argparse.Namespace) -> None:
    instance = fleet.instance(options.name)
    interactive = ("-t",) if not options.command and sys.stdin.isatty() else ()
    replace_process(instance.ssh(fleet.places.key, *options.command, options=(*instance.shared(), *interactive)))


def _reboot(fleet: Fleet, options: argparse.Namespace) -> None:
    instance = fleet.instance(options.name)
    boot = instance.wait_ready(fleet.places.key, BOOT_LIMIT_S)
    instance.hang_up(fleet.places.key)
    if options.power_cut:
        instance.reset()
    else:
        run(instance.ssh(fleet.places.key, "systemctl --no-block reboot"))
    begun = time.monotonic()
    instance.wait_ready(fleet.places.key, BOOT_LIMIT_S, old_boot=boot)
    _say(f"{instance.name} is back after {time.monotonic() - begun:.0f} s")


def _start(fleet: Fleet, options: argparse.Namespace) -> None:
    begun = time.monotonic()
    fleet.switch_on(options.name).wait_ready(fleet.places.key, BOOT_LIMIT_S)
    _say(f"{options.name} is back after {time.monotonic() - begun:.0f} s")


def _console(fleet: Fleet, options: argparse.Namespace) -> None:
    instance = fleet.instance(options.name)
    attach(instance.directory / "console.sock", instance.console)


def _guest_image(fleet: Fleet, options: argparse.Namespace) -> None:
    print(
        fleet.guest_image(options.kind).resolve()
    )  # the name that does not change is a link, which `image add` refuses


def _driver_bundle(fleet: Fleet, options: argparse.Namespace) -> None:
    if not DRIVER_VERSION.fullmatch(options.version):
        raise LabError(f"{options.version} is no driver version", "give one like 580.95.05")
    if not options.directory.is_dir():
        raise LabError(f"there is no directory {options.directory}", "make it, or name another with --directory")
    if options.guest:
        path = write_guest_bundle(options.directory, options.version)
    else:
        image = base(fleet.places.cache, _say)
        path = write_bundle(fleet.places.project, image, options.directory, options.version, options.fails)
    if options.signed:
        sign_file(path)
    print(path)


def _fault(fleet: Fleet, options: argparse.Namespace) -> None:
    instance = fleet.instance(options.name)
    command = fault_command(options.gpu, options.switch, options.value)
    print(run(instance.ssh(fleet.places.key, command, options=instance.shared())), end="")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab", description="GPU hosts without a GPU.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[Fleet, argparse.Namespace], None], help_: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_, description=help_)
        added.set_defaults(act=act)
        return added

    up = command("up", _up, "bring hosts up and wait until they are ready")
    up.add_argument("--scenario", action="append", type=Path, metavar="FILE", help="hosts to bring up; may be repeated")
    down = command("down", _down, "end all hosts, or those that are named, and remove what belongs to them")
    down.add_argument("name", nargs="*")
    status = command("status", _status, "say which hosts there are and how to reach them")
    status.add_argument("-o", "--output", choices=["table", "json"], default="table")
    ssh = command("ssh", _ssh, "log in to a host as root, or run a command there")
    ssh.add_argument("name")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    reboot = command("reboot", _reboot, "reboot a host and wait until it is ready")
    reboot.add_argument("name")
    reboot.add_argument("--power-cut", action="store_true", help="at once: what was not written to its disk is lost")
    for name, act, help_ in (
        ("start", _start, "switch a host on whose QEMU ended, with the disk that it has"),
        ("console", _console, "attach to a host's serial console"),
    ):
        command(name, act, help_).add_argument("name")
    _add_kinds(command("guest-image", _guest_image, "build the small guest image if need be and print its path"))
    bundle = command("driver-bundle", _driver_bundle, "write a driver file that installs on lab hosts; print its path")
    bundle.add_argument("--version", required=True, help="what the driver says of itself, like 580.95.05")
    bundle.add_argument("--guest", action="store_true", help="the one for inside of VMs")
    bundle.add_argument("--fails", choices=FAILURES, default="none", help="make its installation fail")
    bundle.add_argument("--signed", action="store_true", help="write a signature and the signer's key beside it")
    bundle.add_argument("--directory", type=Path, default=Path(), help="where it is written")
    fault = command("fault", _fault, "switch a failure of a host's GPU on or off")
    fault.add_argument("name")
    fault.add_argument("gpu", type=int, help="number of the GPU in the scenario, from 0")
    fault.add_argument("switch", choices=SWITCHES)
    fault.add_argument("value", nargs="+", help="for example: busy 2, io, hang 30, none; 1 or 0; 79")
    return parser


def _add_kinds(image: argparse.ArgumentParser) -> None:
    kinds = image.add_mutually_exclusive_group()
    for kind, what in (
        ("smallest", "the one that only says which PCI devices it has"),
        ("counting", "that, and it counts aloud and keeps a word in its vGPU: what a move must not lose"),
        ("debian", "a Debian that roles can provision"),
    ):
        kinds.add_argument(f"--{kind}", action="store_const", dest="kind", const=kind, default="small", help=what)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        options.act(Fleet(places(), _say), options)
    except LabError as error:
        _say(f"error: {error.message}")
        if error.hint:
            _say(f"hint: {error.hint}")
        return 1
    return 0
