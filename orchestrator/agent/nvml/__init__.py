# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's management library, through pynvml; the only importer of it."""
