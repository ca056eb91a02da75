# SPDX-License-Identifier: Apache-2.0
"""What the host's own module says of a reboot; a host is not believed."""

from __future__ import annotations

from typing import Final

from orchestrator.core.drivers.host_drivers import DueReboot
from orchestrator.core.errors import Unknown

MAX_WORDS: Final = 400


def due_reboot_of(returned: object, host: str) -> DueReboot | None:
    """``told``: what the module returned; None: the host does not reboot.

    :raises Unknown: ``host.provisioning_unknown``: it is something else
    """
    if returned is None:
        return None
    why, boot_id = (returned.get("why"), returned.get("boot_id")) if isinstance(returned, dict) else (None, None)
    if not isinstance(why, str) or not isinstance(boot_id, str) or not boot_id:
        raise Unknown("host.provisioning_unknown", f"{host} said of its reboot what nobody knows")
    return DueReboot(why=" ".join(why.split())[:MAX_WORDS], boot_id=boot_id[:MAX_WORDS])
