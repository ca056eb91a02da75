# SPDX-License-Identifier: Apache-2.0
"""Attacks that are generated. Each file here is a family: its cases, and what must come out of each.

A sample runs with `make test`, all of them with `make soak`; docs/reference/hostile.md counts them.
"""
