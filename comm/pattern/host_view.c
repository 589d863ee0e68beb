/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/host_view.c - places and counts.
 */
#include "comm/pattern/host_view.h"

wefti_host_view wefti_host_view_of(const wefti_problem *problem)
{
    const wefti_grouping *grouping = problem->grouping;
    int host = grouping->hosts[problem->rank];
    wefti_host_view view = {
        .problem = problem,
        .grouping = grouping,
        .host = host,
        .ranks = (size_t)wefti_grouping_ranks(grouping, host),
        .local =
            (size_t)(grouping->places[problem->rank] - grouping->begins[host])};
    view.remotes = (size_t)problem->nranks - view.ranks;
    view.handled = view.remotes > view.local
                       ? (view.remotes - view.local - 1) / view.ranks + 1
                       : 0;
    return view;
}

int wefti_host_view_remote(const wefti_host_view *view, size_t number)
{
    size_t nranks = (size_t)view->problem->nranks;
    size_t place = (size_t)view->grouping->begins[view->host + 1] + number;
    return view->grouping->members[place % nranks];
}

int wefti_host_view_before(const wefti_host_view *view, int back)
{
    const int hosts = view->grouping->host_count;
    return (view->host + hosts - back) % hosts;
}
