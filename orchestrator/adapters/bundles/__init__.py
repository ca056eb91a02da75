# SPDX-License-Identifier: Apache-2.0
"""The operator's driver bundles: checked, kept under their SHA-256, never executed here."""
