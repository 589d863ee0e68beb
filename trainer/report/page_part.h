/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_part.h - the parts of a page, and what they are written
 * with. Everything is XML that browsers read as HTML.
 */
#ifndef TRAINER_REPORT_PAGE_PART_H
#define TRAINER_REPORT_PAGE_PART_H

#include "trainer/report/page.h"

typedef struct wefti_page_view {
    FILE *file;
    const wefti_page *page;
    const wefti_config *config;
    const wefti_summary *summary;
    const wefti_metrics_step *median; /* NULL: no step was done */
} wefti_page_view;

/* Whether its compute had a core for less than 90% of its time. */
bool wefti_page_is_oversubscribed(const wefti_metrics_step *step);

/* Any text, as text. */
void wefti_page_text(FILE *file, const char *text);

/* "1.5 GB"; 1e9 bytes are a GB. Returns text. */
enum { WEFTI_PAGE_NUMBER_BYTES = 32 };
const char *wefti_page_bytes(double bytes, char text[WEFTI_PAGE_NUMBER_BYTES]);

extern const char wefti_page_style[];

void wefti_page_put_loss(const wefti_page_view *view);
void wefti_page_put_breakdown(const wefti_page_view *view);
void wefti_page_put_throughput(const wefti_page_view *view);

void wefti_page_put_ranks(const wefti_page_view *view);
void wefti_page_put_traffic(const wefti_page_view *view);
void wefti_page_put_measured(const wefti_page_view *view);
void wefti_page_put_settings(const wefti_page_view *view);

/* Returns OK | what the painter says. */
WEFT_NODISCARD weft_status wefti_page_put_schedule(const wefti_page_view *view);
WEFT_NODISCARD weft_status wefti_page_put_trials(const wefti_page_view *view);

/* A step as planned, above as it ran. Returns OK | what the painter says. */
WEFT_NODISCARD weft_status wefti_page_put_lines(
    FILE *file, const weft_schedule *schedule, const weft_schedule_run *planned,
    const weft_schedule_run *ran);

/* The same facts for programs, in an element that nothing runs. */
WEFT_NODISCARD weft_status wefti_page_put_data(const wefti_page_view *view);

#endif
