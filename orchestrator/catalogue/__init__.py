# SPDX-License-Identifier: Apache-2.0
"""Reads NVIDIA's tables and our offerings into the models of ``orchestrator.core``.

Entry points: ``catalogue.shipped`` (the tables and offerings that come with vgpuctl), ``profiles`` (what a
name after ``--profile`` means), ``offering_files`` (validation) and ``reconcile``.
"""
