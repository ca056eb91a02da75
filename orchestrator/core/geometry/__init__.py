# SPDX-License-Identifier: Apache-2.0
"""GPUs, and hosts' sets of GPUs, as slots: tables in, legal places out."""
