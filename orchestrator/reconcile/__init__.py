# SPDX-License-Identifier: Apache-2.0
"""Keeps hosts and database in agreement: looks, tells what differs, and repairs what is safe."""
