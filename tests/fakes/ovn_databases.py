# SPDX-License-Identifier: Apache-2.0
"""OVN's own databases and its ovn-northd, as processes that keep to a directory."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from orchestrator.adapters.state.ovn_authority import OvnAuthority
from orchestrator.core.ovn import CertificateFor, OvnDatabase
from tests.fakes.ports import own_port

_FILES: Final[dict[OvnDatabase, tuple[str, str]]] = {
    "northbound": ("nb", "OVN_Northbound"),
    "southbound": ("sb", "OVN_Southbound"),
}


@dataclass(frozen=True)
class RealOvn:
    """Both databases on unix sockets below ``root``; over TLS where it was begun with an authority."""

    root: Path
    ports: dict[OvnDatabase, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def socket(self, database: OvnDatabase) -> str:
        return f"unix:{self.root / _FILES[database][0]}.sock"

    def secured(self, database: OvnDatabase) -> str:
        return f"ssl:127.0.0.1:{self.ports[database]}"

    def nbctl(self, *words: str) -> str:
        return _ran("ovn-nbctl", f"--db={self.socket('northbound')}", *words)

    def sbctl(self, *words: str) -> str:
        return _ran("ovn-sbctl", f"--db={self.socket('southbound')}", *words)

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()


@contextmanager
def real_ovn(
    root: Path, authority: OvnAuthority | None = None, of_northbound: Callable[[Any], None] = lambda schema: None
) -> Iterator[RealOvn]:
    """Until the end of the block. ``of_northbound``: makes the northbound's schema that of another version."""
    made = RealOvn(root, {"northbound": own_port(), "southbound": own_port()})
    try:
        for database, (short, _) in _FILES.items():
            schema = json.loads(Path(f"/usr/share/ovn/ovn-{short}.ovsschema").read_text())
            if database == "northbound":
                of_northbound(schema)
            (root / f"{short}.ovsschema").write_text(json.dumps(schema))
            _ran("ovsdb-tool", "create", str(root / f"{short}.db"), str(root / f"{short}.ovsschema"))
            made.processes[database] = _server(made, database, authority)
        for tool in ("nbctl", "sbctl"):
            getattr(made, tool)("init")
        words = [f"--ovnnb-db={made.socket('northbound')}", f"--ovnsb-db={made.socket('southbound')}"]
        made.processes["northd"] = _begun(root, "ovn-northd", *words, f"--unixctl={root / 'northd.ctl'}")
        made.nbctl("--wait=sb", "--timeout=30", "sync")
        yield made
    finally:
        for name in list(made.processes):
            made.end(name)


def _server(ovn: RealOvn, database: OvnDatabase, authority: OvnAuthority | None) -> subprocess.Popen[bytes]:
    short, _ = _FILES[database]
    words = [f"--remote=p{ovn.socket(database)}", f"--unixctl={ovn.root / short}.ctl"]
    if authority is not None:
        key, certificate = with_certificate(authority, "central", "central-1", ovn.root / short)
        believed = ovn.root / f"{short}-trusted.pem"
        believed.write_text(authority.trusted("central") + (authority.trusted("host") if short == "sb" else ""))
        words += [f"--private-key={key}", f"--certificate={certificate}", f"--ca-cert={believed}"]
        words += [f"--remote=pssl:{ovn.ports[database]}:127.0.0.1"]
    begun = _begun(ovn.root, "ovsdb-server", *words, str(ovn.root / f"{short}.db"))
    until = time.monotonic() + 30
    while not (ovn.root / f"{short}.sock").exists():
        assert (begun.poll(), time.monotonic() < until) == (None, True), (ovn.root / "log").read_text()
        time.sleep(0.02)
    return begun


def with_certificate(authority: OvnAuthority, whose: CertificateFor, name: str, directory: Path) -> tuple[Path, Path]:
    """A key that openssl made, and what the authority signed for it."""
    directory.mkdir(exist_ok=True)
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    request = request_of(key, name)
    certificate.write_text(authority.sign(whose, name, request).certificate)
    return key, certificate


def request_of(key: Path, name: str, kind: Sequence[str] = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")) -> str:
    """For a new key at that place."""
    return _ran("openssl", "req", "-new", "-newkey", *kind, "-nodes", "-keyout", str(key), "-subj", f"/CN={name}")


def _begun(root: Path, *words: str) -> subprocess.Popen[bytes]:
    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            words, stdout=log, stderr=log, env={"PATH": "/usr/sbin:/usr/bin", "OVN_RUNDIR": str(root)}
        )


def _ran(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
