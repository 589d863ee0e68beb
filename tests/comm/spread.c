/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/spread.c - who is with whom, and the emulated hosts. These have no
 * names; they end with the test program.
 */
#include "tests/comm/spread.h"

#include "perf/net_emulation.h"
#include "weft/weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 64, SKIPPED = 77 };

static const char *const names[] = {"shared", "apart", "pairs", "uneven",
                                    "shuffled"};
static const char nodes_prefix[] = "nodes:";

static net_emulation nodes;

static const char *plain_name(const char *spread)
{
    return spread_has_nodes(spread) ? spread + strlen(nodes_prefix) : spread;
}

const char *spread_get(void)
{
    const char *spread = getenv("WEFT_TEST_DOMAINS");
    if (!spread) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(plain_name(spread), names[i]) == 0) {
            return spread;
        }
    }
    fprintf(stderr, "WEFT_TEST_DOMAINS=%s: see tests/comm/spread.h\n", spread);
    exit(1);
}

bool spread_is_wide(void)
{
    const char *spread = spread_get();
    return spread && strcmp(plain_name(spread), "shared") != 0;
}

/* A word's letter, by rank; the words repeat with other letters. */
static int lettered(const char *word, int domains, int rank)
{
    int ranks = (int)strlen(word);
    return rank / ranks * domains + (word[rank % ranks] - 'a');
}

int spread_domain(const char *spread, int rank)
{
    const char *name = plain_name(spread);
    if (strcmp(name, "apart") == 0) {
        return rank;
    }
    if (strcmp(name, "pairs") == 0) {
        return rank / 2;
    }
    if (strcmp(name, "uneven") == 0) {
        return lettered("aaab", 2, rank);
    }
    return strcmp(name, "shuffled") == 0 ? lettered("abacbdcb", 4, rank) : 0;
}

bool spread_parts(int rank, int other)
{
    const char *spread = spread_get();
    return spread &&
           spread_domain(spread, rank) != spread_domain(spread, other);
}

void spread_set_domains(const char *spread, int nranks)
{
    char text[4 * MOST_RANKS] = "";
    if (!spread || spread_has_nodes(spread)) {
        return;
    }
    for (int rank = 0; rank < nranks && rank < MOST_RANKS; rank++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%d", rank ? "," : "",
                 spread_domain(spread, rank));
    }
    setenv("WEFT_DOMAIN", text, 1);
}

void spread_unset_domains(const char *spread)
{
    if (spread && !spread_has_nodes(spread)) {
        unsetenv("WEFT_DOMAIN");
    }
}

bool spread_has_nodes(const char *spread)
{
    return spread && strncmp(spread, nodes_prefix, strlen(nodes_prefix)) == 0;
}

static void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weft_error_text());
    exit(1);
}

void spread_make_nodes(const char *spread, int nranks)
{
    int most = 0;
    for (int rank = 0; rank < nranks; rank++) {
        int domain = spread_domain(spread, rank);
        most = domain > most ? domain : most;
    }
    if (most < nodes.node_count) {
        return;
    }
    net_spec spec = {.node_count = most + 1, .rail_count = 1};
    net_emulation_close(&nodes);
    weft_status status = net_emulation_open(&spec, &nodes);
    if (status == WEFT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", weft_error_text());
        exit(SKIPPED);
    }
    if (status != WEFT_OK) {
        give_up("emulated nodes");
    }
}

const char *spread_enter_network(int domain)
{
    if (net_emulation_enter_network(&nodes, domain) != WEFT_OK) {
        give_up("the network of an emulated node");
    }
    return nodes.nodes[domain].address;
}

void spread_leave_network(void)
{
    if (net_emulation_return(&nodes) != WEFT_OK) {
        give_up("the way back");
    }
}

void spread_move_in(int domain)
{
    int error = net_emulation_move_in(&nodes, domain);
    if (error != 0) {
        fprintf(stderr, "emulated node %d: %s\n", domain, strerror(error));
        _Exit(1);
    }
}
