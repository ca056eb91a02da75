# SPDX-License-Identifier: Apache-2.0
"""GPUs as drivers and tables know them: models, vGPU types, MIG profiles, devices, health, fabrics."""
