# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.web``: writes build/bench/web.json. ``--hosts``: how many with eight GPUs each, one fleet
after the other, each for a quarter of an hour at most; ``--vms``: how many are on each of them before that, made by
filling.py."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from playwright.sync_api import Page, ViewportSize, sync_playwright

from orchestrator.client.autostart import server_info
from orchestrator.client.client import Client
from orchestrator.client.http import UnixHttp
from orchestrator.client.location import SOCKET_NAME
from orchestrator.reconcile.reconciler import Reconciler
from tests.bench.placement.rows import Row, rows_of, table, write
from tests.bench.web.filling import fill
from tests.bench.web.looking import PEOPLE, looking
from tests.fakes.running import client_of
from tests.fakes.simulated import serving, wish

REPORT: Final = Path("build/bench/web.json")
PAGES: Final = ("map", "map?use=partly", "hosts", "vms", "vms/default/vm-0", "vms/new", "operations", "capacity")
ORDERS: Final = ("name", "tenant", "state", "profile", "vcpus", "memory_mib", "lease_end", "created_at", "host")
"""Of the list of VMs of a fleet that is full of them."""
FRAGMENTS: Final = ("map", "map/gpus", "hosts", "vms", "vms/default/vm-0", "operations")
VMS: Final = 50
WINDOW: Final = ViewportSize(width=1280, height=720)
VISITS: Final = 5
REPEATS: Final = 40
IDLE_S: Final = 3.0
LIMIT_S: Final = 900
ROUND_S: Final = Reconciler.timeout_s
_ROUND: Final = re.compile("^observe: went well ([0-9]+) s ago", re.MULTILINE)
_FLEET: Final = """\
groups:
  - {{name: l40s, count: {hosts}, gpu_model: L40S, gpus_per_host: 8, vcpus: 128, memory_gib: 1024}}
"""
_PAINTED: Final = """() => new Promise(resolve => {
    const entry = () => performance.getEntriesByName("first-contentful-paint")[0];
    const page = performance.getEntriesByType("navigation")[0];
    const told = () => resolve([entry().startTime, page.responseStart, page.encodedBodySize, page.decodedBodySize]);
    if (entry()) told(); else new PerformanceObserver(told).observe({type: "paint", buffered: true});
})"""

_FETCH: Final = """async ([address, repeats]) => {
    const sizes = [];
    for (let number = 0; number < repeats; number++) {
        const headers = {"HX-Request": "true", "HX-Target": "div#live"};
        const answer = await fetch(`${address}${address.includes("?") ? "&" : "?"}number=${number}`, {headers});
        if (answer.status != 200) throw new Error(answer.status);
        sizes.push((await answer.text()).length);
    }
    return sizes;
}"""


def _cpu_s(pid: int) -> float:
    """Of the process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _settle(state: Path) -> None:
    """Until every host was observed and, where it was not as stored, compared: when a round of the server's ends that
    took less than the time limit of one. Before that it may be at thousands of hosts still."""
    http, took_s = UnixHttp(state / SOCKET_NAME, 60), ROUND_S
    ended, ago_s = float("-inf"), 0
    while took_s >= ROUND_S:
        before, (ago_s,) = ago_s, map(int, _ROUND.findall(http.request("GET", "/readyz", None, None).body.decode()))
        if ago_s < before:
            took_s, ended = time.monotonic() - ended, time.monotonic()
        time.sleep(0.5)
    http.close()


def _painted(page: Page, address: str) -> dict[str, float]:
    samples = []
    for _ in range(VISITS):
        page.goto(address)
        samples.append(page.evaluate(_PAINTED))
    paint, answer, encoded, decoded = (median(column) for column in zip(*samples, strict=True))
    return {"first_paint_ms": paint, "answer_ms": answer, "compressed_kb": encoded / 1000, "html_kb": decoded / 1000}


def _fragment(page: Page, address: str, pid: int) -> dict[str, float]:
    """Processor time of the server process, less what it does besides, as observing its hosts. Each address is another
    one, as the same is made ten times a second at most."""
    page.evaluate(_FETCH, [address, 1])
    idle = _used(pid, lambda: time.sleep(IDLE_S))
    sizes: list[int] = []
    fetched = _used(pid, lambda: sizes.extend(page.evaluate(_FETCH, [address, REPEATS])))
    cpu_s = fetched.cpu_s - fetched.wall_s * idle.cpu_s / idle.wall_s
    return {"cpu_ms": cpu_s * 1000 / REPEATS, "html_kb": median(sizes) / 1000}


class _Used(NamedTuple):
    cpu_s: float
    wall_s: float


def _used(pid: int, act: Callable[[], object]) -> _Used:
    """By the process while it is done."""
    cpu_s, wall_s = _cpu_s(pid), time.monotonic()
    act()
    return _Used(_cpu_s(pid) - cpu_s, time.monotonic() - wall_s)


def _lists(page: Page, address: str) -> Iterator[str]:
    """First and last page of the list of VMs in each order: the other way round the next page begins at the last."""
    for order in ORDERS:
        yield f"vms?sort={order}"
        page.goto(f"{address}/web/vms?sort=-{order}")
        following = urlsplit(page.get_by_role("link", name="Next page").get_attribute("href") or "")
        yield f"vms?sort={order}&{urlencode({'after': parse_qs(following.query)['after'][0]})}"


def _rows(client: Client, other: Client, hosts: int, picture: Path | None, *, full: bool) -> Iterator[Row]:
    pid, given = int(server_info(client.connection)["pid"]), client.web_ticket()
    with sync_playwright() as driver:
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        context = driver.chromium.launch(executable_path=program, args=["--no-sandbox"]).new_context(viewport=WINDOW)
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.goto(f"{given['address']}/web/ticket#{given['ticket']}")
        page.wait_for_url("**/web/map")
        for path in (*PAGES, *(f"vms?sort={order}" for order in ORDERS if full)):
            yield from rows_of(
                "web", f"{path}, {hosts} hosts", "page", _painted(page, f"{given['address']}/web/{path}")
            )
        if picture is not None:
            page.goto(f"{given['address']}/web/map")
            page.screenshot(path=picture)
        lists = list(_lists(page, given["address"])) if full else []
        page.goto(f"{given['address']}/web/login")
        for path in (*FRAGMENTS, *lists):
            cost = {**_fragment(page, f"{given['address']}/web/{path}", pid), "load": os.getloadavg()[0]}
            name = f"{path.partition('&')[0]}{' (last page)' if '&' in path else ''}"
            yield from rows_of("web", f"{name}, {hosts} hosts", "fragment", cost)
        context.close()
    for people, tokens in ((0, 0), (PEOPLE, 0), (PEOPLE, PEOPLE)):
        case = f"vms, {hosts} hosts, {people} people" + (", each with a token" if tokens else "")
        yield from rows_of("web", case, "looking", looking(client, other, people, tokens))


@contextmanager
def _limited() -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)


def _measured(directory: Path, hosts: int, vms: int, picture: Path | None) -> Iterator[Row]:
    state, fleet = directory / "state", directory / "fleet.yaml"
    fleet.write_text(_FLEET.format(hosts=hosts))
    if vms:
        fill(state, fleet, "NVIDIA L40S-12Q", vms)
    with _limited(), serving(state, fleet) as client, client_of(state) as other:
        for number in range(VMS):
            client.create_vm(wish(f"vm-{number}", "NVIDIA L40S-12Q"))
        for operation in client.operations():
            client.wait(operation["id"])
        _settle(state)
        yield from _rows(client, other, hosts, picture, full=vms > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--vms", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="where a picture of the map is written")
    chosen = parser.parse_args()
    rows: list[Row] = []
    for hosts in chosen.hosts:
        try:
            with tempfile.TemporaryDirectory() as directory:
                rows += _measured(Path(directory), hosts, chosen.vms, chosen.picture)
        except TimeoutError:
            sys.stderr.write(f"{hosts} hosts: not done after {LIMIT_S} s\n")
        write(rows, REPORT)
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
