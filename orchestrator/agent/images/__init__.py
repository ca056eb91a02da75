# SPDX-License-Identifier: Apache-2.0
"""Base images, overlay disks and seeds: files below the agent's storage directory."""
