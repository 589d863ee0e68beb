/* SPDX-License-Identifier: BSD-3-Clause */
typedef int wefti_comm_unused;
