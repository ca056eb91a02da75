# SPDX-License-Identifier: Apache-2.0
"""What a file (catalogue/manifest_file.py) wants is compared with what there is, and made so."""
