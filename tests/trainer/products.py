# SPDX-License-Identifier: BSD-3-Clause
"""Which library multiplies in jobs that are not about products."""

# A process that uses oneDNN has it write its kernels anew: of a small job's CPU
# time two thirds. OpenBLAS's are there.
WITHOUT_ONEDNN = {"WEFT_ONEDNN": "off"}
