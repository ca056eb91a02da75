# SPDX-License-Identifier: Apache-2.0
"""The control plane under faults, in virtual time, by seed: ``python -m tests.simulated --seed N``."""
