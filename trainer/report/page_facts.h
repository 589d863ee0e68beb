/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_facts.h - what a page is made of: the facts of a run as
 * JSON, between the two halves of a page that draws them.
 *
 * The halves are page.html with page.css, page_draw.js and page_sections.js in
 * it, which the build puts into an array each (cmake/WeftPage.cmake).
 */
#ifndef TRAINER_REPORT_PAGE_FACTS_H
#define TRAINER_REPORT_PAGE_FACTS_H

#include "base/json.h"
#include "trainer/report/page.h"

extern const char wefti_page_head[], wefti_page_tail[];

/* All of it, as one object. */
void wefti_page_put_facts(wefti_json *json, const wefti_page *page,
                          const wefti_config *config,
                          const wefti_summary *summary);

/* Part of it: schedule, trials and auto. */
void wefti_page_put_schedules(wefti_json *json, const wefti_page *page);

#endif
