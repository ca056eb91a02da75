# SPDX-License-Identifier: Apache-2.0
"""Operations on a host."""

from __future__ import annotations

from orchestrator.operations.step import Definition
from orchestrator.operations.steps import cards, driver, evacuating, gpu_reset, host, mig_layout, rebooting, repairs

ADD_HOST = Definition(
    kind="add_host",
    steps=(
        host.ENROL,
        host.INSTALL,
        host.FIRST_OBSERVATION,
        host.CHOOSE,
        host.MANAGE,
        host.FUNCTIONS,
        host.DEFAULT_NETWORK,
        host.READY,
    ),
    stuck=host.mark_failed,
    abandoned=host.forget_host,
    waits_for_host=False,
)

REMOVE_HOST = Definition(
    kind="remove_host",
    steps=(
        host.LEAVING,
        host.DISABLE_FUNCTIONS,
        host.REMOVE_NETWORKS,
        host.REMOVE_IMAGES,
        host.RELEASE_GPUS,
        host.UNINSTALL,
        host.FORGET,
    ),
    stuck=host.mark_failed,
    abandoned=host.forget_host,
    forward_only=True,
    waits_for_host=False,
)

UPGRADE_AGENT = Definition(
    kind="upgrade_agent",
    steps=(host.UPGRADE, host.BACK),
    stuck=host.mark_failed,
    abandoned=lambda _: None,
    waits_for_host=False,
)

_DRIVER = (
    driver.PROVISION,
    driver.HEALTHY,
    driver.DRIVER_FUNCTIONS,
    driver.PROBE,
    host.READY,
)

PROVISION_HOST = Definition(
    kind="provision_host",
    steps=(driver.FILES, driver.UNUSED, driver.IN_OVN, *_DRIVER),
    stuck=host.mark_failed,
    abandoned=lambda _: None,
    waits_for_host=False,
)

UPGRADE_DRIVER = Definition(
    kind="upgrade_driver",
    steps=(driver.FILES, driver.UNUSED, *_DRIVER),
    stuck=host.mark_failed,
    abandoned=lambda _: None,
    waits_for_host=False,
)
"""One host's part of a rolling upgrade; its VMs have left."""

REBOOT_HOST = Definition(
    kind="reboot_host",
    steps=(rebooting.UNUSED, rebooting.REBOOT, rebooting.ANSWERS, host.READY),
    stuck=host.mark_failed,
    abandoned=lambda _: None,
    waits_for_host=False,
)
"""Its VMs have left."""

FENCE_HOST = Definition(
    kind="fence_host",
    steps=(evacuating.POWER_OFF,),
    stuck=lambda _: None,
    abandoned=lambda _: None,
    waits_for_host=False,
)
"""A host that does not answer has its power switched off, from outside."""

GIVE_UP_VMS = Definition(
    kind="give_up_vms",
    steps=(repairs.EPOCH, evacuating.GIVE_UP),
    stuck=lambda _: None,
    abandoned=lambda _: None,
    forward_only=True,
)
"""About a host that is back, and whose VMs were started elsewhere."""

APPLY_MIG = Definition(
    kind="apply_mig",
    steps=(mig_layout.KEEP, mig_layout.CUT, mig_layout.SEEN),
    stuck=lambda _: None,
    abandoned=lambda _: None,
)
"""The GPUs of one that is abandoned stay kept: 'mig release' gives them back."""

RELEASE_MIG = Definition(
    kind="release_mig",
    steps=(mig_layout.UNCUT, mig_layout.FORGET),
    stuck=lambda _: None,
    abandoned=lambda _: None,
)

ACCEPT_GPUS = Definition(
    kind="accept_gpus",
    steps=(cards.FORGET, cards.RECORD, cards.TELL),
    stuck=lambda _: None,
    abandoned=lambda _: None,
    forward_only=True,
)
"""Until the agent has been told, it refuses to make anything where another card is than it knows."""

RESET_GPU = Definition(
    kind="reset_gpu",
    steps=(gpu_reset.CHECK_EMPTY, gpu_reset.RESET, gpu_reset.ANSWERS, gpu_reset.TRY, gpu_reset.QUIET),
    stuck=gpu_reset.mark_failed,
    abandoned=lambda _: None,
)
"""Of a GPU that is closed; one that is not well afterwards stays so."""
