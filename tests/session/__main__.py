# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.session``: writes the recording again, from simulated hosts.

With ``--state``, ``--url`` and ``--certificate`` it is a site that runs already, lab hosts for instance; the recording
is then written beside ``--out``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.session.play import Said, played
from tests.session.record import CAST, PAGE, cast_of, page_of
from tests.session.site import Site, simulated_site


def main() -> None:
    wanted = _arguments()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if wanted.state is None:
            with simulated_site(directory) as site:
                session = list(played(site, directory))
        else:
            site = Site(
                wanted.state.resolve(), wanted.url, wanted.certificate, wanted.host, wanted.vgpu_type, wanted.image
            )
            session = list(played(site, directory))
    _write(session, wanted.out)
    failed = [said.command for said in session if said.status]
    sys.exit(f"failed: {failed}" if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.session", description="Record the session of three persons.")
    parser.add_argument("--state", type=Path, help="state directory of a server that runs")
    parser.add_argument("--url", help="its address over TLS")
    parser.add_argument("--certificate", type=Path, help="PEM file of whom to trust there")
    parser.add_argument("--host", default=Site.host)
    parser.add_argument("--vgpu-type", default=Site.vgpu_type)
    parser.add_argument("--image", default=Site.image)
    parser.add_argument("--out", type=Path, help="write OUT.cast and OUT.md in place of the tutorial's")
    return parser.parse_args()


def _write(session: list[Said], out: Path | None) -> None:
    cast, page = (CAST, PAGE) if out is None else (out.with_suffix(".cast"), out.with_suffix(".md"))
    cast.write_text(cast_of(session), encoding="utf-8")
    page.write_text(page_of(session), encoding="utf-8")


if __name__ == "__main__":
    main()
