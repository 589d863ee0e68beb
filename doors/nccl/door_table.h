/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_table.h - the reports of a communicator's ranks as one table:
 * made by whoever adds the last of them to the file that all name.
 */
#ifndef DOORS_NCCL_DOOR_TABLE_H
#define DOORS_NCCL_DOOR_TABLE_H

#include "doors/nccl/door_report.h"

/*
 * wefti_door_table_make - if every rank's line is in the file, the table of
 * them in the log, and as a line of JSON in text_out.
 *
 * path       lines of wefti_door_report_print, this rank's the last of its
 *            communicator's; nobody else makes a table meanwhile.
 * text_out   the line, to be freed; NULL: some have yet to come, or no memory.
 */
void wefti_door_table_make(const char *path,
                           const wefti_door_reporter *reporter, char **text_out,
                           size_t *bytes_out);

#endif
