/* SPDX-License-Identifier: BSD-3-Clause */
typedef int wefti_device_host_unused;
