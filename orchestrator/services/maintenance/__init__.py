# SPDX-License-Identifier: Apache-2.0
"""Declared maintenance: show, pause, go on, cancel, and for whom it waits."""
