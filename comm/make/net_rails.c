/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/net_rails.c - who has which rail, who gets through, what they take.
 */
#include "comm/make/net_rails.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/engine/engine.h"
#include "comm/net/net.h"
#include "comm/post/post.h"

#include <stdio.h>
#include <string.h>

enum {
    REACH_MS = 3000, /* as for interfaces */
    SLOWEST = 16,    /* times slower than the fastest: not worth it */
    TRIES = 3        /* of all together, until they are faster */
};

/* ---- the choice ---------------------------------------------------------- */

static int find_fastest(const wefti_rail_figures *figures)
{
    int fastest = 0;
    for (int r = 1; r < figures->count; r++) {
        if (figures->alone[r].byte_ps < figures->alone[fastest].byte_ps) {
            fastest = r;
        }
    }
    return fastest;
}

/* Those that are worth trying together, as bits. */
static unsigned worth_trying(const wefti_rail_figures *figures)
{
    const int64_t least = figures->alone[find_fastest(figures)].byte_ps;
    unsigned worth = 0;
    for (int r = 0; r < figures->count; r++) {
        worth |= (unsigned)(figures->alone[r].byte_ps / SLOWEST <= least) << r;
    }
    return worth;
}

/* The first, unless another is a third quicker. */
static int find_quickest(const wefti_rail_figures *figures, unsigned used)
{
    int quickest = -1;
    for (int r = 0; r < figures->count; r++) {
        const int64_t latency_ns = figures->alone[r].latency_ns;
        if (used >> r & 1 &&
            (quickest < 0 ||
             latency_ns < figures->alone[quickest].latency_ns * 2 / 3)) {
            quickest = r;
        }
    }
    return quickest;
}

bool wefti_net_rails_choose(const wefti_rail_figures *figures,
                            const wefti_net_figures *together,
                            wefti_port_rails *rails_out)
{
    const int fastest = find_fastest(figures);
    const int64_t alone = figures->alone[fastest].byte_ps;
    const unsigned worth = worth_trying(figures);
    int64_t byte_ps[WEFTI_RAILS_MOST] = {0};
    for (int r = 0; r < figures->count; r++) {
        byte_ps[r] = worth >> r & 1 ? figures->alone[r].byte_ps : 0;
    }
    const int64_t gain = alone - wefti_rails_byte_ps(byte_ps);
    const bool all = gain > 0 && alone - together->byte_ps >= gain / 2;
    const unsigned used = all ? worth : 1U << fastest;
    *rails_out = (wefti_port_rails){.small = find_quickest(figures, used)};
    for (int r = 0; r < figures->count; r++) {
        rails_out->byte_ps[r] = used >> r & 1 ? figures->alone[r].byte_ps : 0;
    }
    return all;
}

/* ---- what ranks have in common ------------------------------------------- */

/* What one rank says of its rails: their numbers. */
typedef struct offer {
    uint32_t numbers[WEFTI_RAILS_MOST];
} offer;

/* local: each rail's place among this rank's own; named: given by the user. */
typedef struct common {
    weft_comm *world;
    wefti_net *net;
    int count;
    int local[WEFTI_RAILS_MOST];
    bool named;
} common;

static void name_rail(const wefti_net *net, int local,
                      char name_out[WEFTI_INTERFACE_NAME_BYTES])
{
    const char *at = net->use.names;
    for (int i = 0; i < local; i++) {
        at += strcspn(at, ",");
        at += *at == ',';
    }
    snprintf(name_out, WEFTI_INTERFACE_NAME_BYTES, "%.*s",
             (int)strcspn(at, ","), at);
}

/* Each rank names its own interface: louder, if the user has named it. */
static void say_unused(const common *self, int local, const char *why, int rank)
{
    char name[WEFTI_INTERFACE_NAME_BYTES];
    name_rail(self->net, local, name);
    wefti_log(self->named ? WEFTI_LOG_WARN : WEFTI_LOG_INFO, self->world->rank,
              "net: no rail of %s: rank %d %s", name, rank, why);
}

static bool has(const offer *one, uint32_t number)
{
    int i = 0;
    while (i < WEFTI_RAILS_MOST && one->numbers[i] != number) {
        i++;
    }
    return number != 0 && i < WEFTI_RAILS_MOST;
}

/* The first rank that lacks rank 0's first rail, or begins with another; -1:
 * none. */
static int find_otherwise(const offer *offers, int nranks)
{
    int rank = 0;
    while (rank < nranks && offers[rank].numbers[0] == offers[0].numbers[0] &&
           offers[rank].numbers[0] != 0) {
        rank++;
    }
    return rank < nranks ? rank : -1;
}

static int find_without(const offer *offers, int nranks, uint32_t number)
{
    int rank = 0;
    while (rank < nranks && has(&offers[rank], number)) {
        rank++;
    }
    return rank < nranks ? rank : -1;
}

/* Rank 0's order is everybody's. */
static void compare(common *self, const offer *offers)
{
    const int nranks = self->world->nranks;
    const offer *own = &offers[self->world->rank];
    const int otherwise = find_otherwise(offers, nranks);
    for (int local = 1; local < WEFTI_RAILS_MOST; local++) {
        const uint32_t number = own->numbers[local];
        const int without = number == 0 ? 0
                            : otherwise >= 0
                                ? otherwise
                                : find_without(offers, nranks, number);
        if (number != 0 && without >= 0) {
            say_unused(self, local,
                       otherwise >= 0 ? "begins with another"
                                      : "has none in that network",
                       without);
        }
    }
    for (int i = 1; i < WEFTI_RAILS_MOST && otherwise < 0; i++) {
        const uint32_t number = offers[0].numbers[i];
        int local = 1;
        if (number == 0 || find_without(offers, nranks, number) >= 0) {
            continue;
        }
        while (own->numbers[local] != number) {
            local++;
        }
        self->local[self->count++] = local;
    }
}

static weft_status find_common(common *self)
{
    const wefti_interface_use *use = &self->net->use;
    offer own = {.numbers = {0}};
    for (int i = 0; i < use->count && i < WEFTI_RAILS_MOST; i++) {
        own.numbers[i] = use->numbers[i];
    }
    weft_status status =
        wefti_post_exchange(WEFTI_PURPOSE_CREATE, &own, self->world->table,
                            sizeof(own), self->world);
    if (status == WEFT_OK) {
        compare(self, self->world->table);
    }
    return status;
}

/* ---- the port ------------------------------------------------------------ */

static void use(const common *self, const wefti_port_rails *rails)
{
    wefti_port_rails local = {.small = self->local[rails->small]};
    for (int r = 0; r < self->count; r++) {
        local.byte_ps[self->local[r]] = rails->byte_ps[r];
    }
    pthread_mutex_lock(&self->world->engine->lock);
    self->net->table->use(self->net->port, &local);
    wefti_engine_unlock(self->world->engine);
}

typedef struct reaching {
    const wefti_net *net;
    int peer, local;
    int64_t until_ns;
} reaching;

static wefti_port_reach look(const reaching *self)
{
    return self->net->table->reach(self->net->port, self->peer, self->local);
}

static bool is_decided(const void *context)
{
    const reaching *self = context;
    return look(self) != WEFTI_PORT_REACH_COMES ||
           wefti_clock_ns() >= self->until_ns;
}

/* Until the peer is reached over the rail, or not. */
static bool reach(const common *self, int rail, int peer)
{
    wefti_engine *engine = self->world->engine;
    const reaching way = {self->net, peer, self->local[rail],
                          wefti_clock_ns() + REACH_MS * INT64_C(1000000)};
    wefti_engine_drive(engine, is_decided, &way);
    pthread_mutex_lock(&engine->lock);
    const bool up = look(&way) == WEFTI_PORT_REACH_UP;
    wefti_engine_unlock(engine);
    return up;
}

/* Those by which this rank gets through to a peer that it will try. */
static uint32_t reach_one(const common *self, int peer)
{
    uint32_t bits = 1;
    for (int rail = 1; rail < self->count; rail++) {
        bits |= (uint32_t)reach(self, rail, peer) << rail;
    }
    return bits;
}

/* To all those. */
static uint32_t reach_partners(const common *self, const wefti_net_try *ask)
{
    uint32_t bits = (1U << self->count) - 1;
    for (int k = 0; 2 * k < ask->leader_count; k++) {
        const wefti_net_pair pair =
            wefti_net_pair_get(ask->leaders, ask->leader_count, k);
        bits &= pair.first == self->world->rank ? reach_one(self, pair.second)
                                                : bits;
    }
    return bits;
}

/* Leaves those by which all get through. */
static void keep_reached(common *self, const uint32_t *reached)
{
    const int count =
        self->count < WEFTI_RAILS_MOST ? self->count : WEFTI_RAILS_MOST;
    int kept = 1;
    for (int rail = 1; rail < count; rail++) {
        int rank = 0;
        while (rank < self->world->nranks && reached[rank] >> rail & 1) {
            rank++;
        }
        if (rank < self->world->nranks) {
            say_unused(self, self->local[rail], "gets through to nobody by it",
                       rank);
        } else {
            self->local[kept++] = self->local[rail];
        }
    }
    self->count = kept;
}

static weft_status find_reached(common *self, const wefti_net_try *ask)
{
    const uint32_t own = reach_partners(self, ask); /* rails, as bits */
    weft_status status =
        wefti_post_exchange(WEFTI_PURPOSE_CREATE, &own, self->world->table,
                            sizeof(own), self->world);
    if (status == WEFT_OK) {
        keep_reached(self, self->world->table);
    }
    return status;
}

/* ---- measuring ----------------------------------------------------------- */

/* For weft-info, and the log. */
static void note(const common *self, const wefti_port_rails *rails)
{
    wefti_net *net = self->net;
    net->rail_count = 0;
    for (int r = 0; r < self->count; r++) {
        if (rails->byte_ps[r] > 0) {
            wefti_net_rail *rail = &net->rails[net->rail_count++];
            name_rail(net, self->local[r], rail->name);
            rail->byte_ps = self->count > 1 ? rails->byte_ps[r] : 0;
        }
    }
}

static void say(const common *self, const wefti_rail_figures *figures,
                const wefti_net_figures *together, bool all)
{
    char text[160] = "";
    for (int r = 0; r < self->count; r++) {
        const size_t used = strlen(text);
        char name[WEFTI_INTERFACE_NAME_BYTES];
        name_rail(self->net, self->local[r], name);
        snprintf(text + used, sizeof(text) - used, "%s%s %.3g Gbit/s",
                 r ? ", " : "", name, 8000 / (double)figures->alone[r].byte_ps);
    }
    if (self->world->rank == 0) {
        wefti_log(self->named && !all ? WEFTI_LOG_WARN : WEFTI_LOG_INFO, 0,
                  "rails: %s; together %.3g Gbit/s: %s", text,
                  8000 / (double)together->byte_ps,
                  all ? "used in proportion"
                      : "no faster than one, so one is used");
    }
}

/*
 * Keeps the faster of together and one more try: what else goes on can only
 * slow one down, and one rail of several for a whole job costs more than a try.
 */
static weft_status find_together(const common *self, const wefti_net_try *ask,
                                 const wefti_port_rails *rails,
                                 wefti_net_figures *together)
{
    /* No faster than each alone allows, whatever the slope between two sizes
     * makes of noise. */
    const int64_t least_ps = wefti_rails_byte_ps(rails->byte_ps);
    wefti_net_figures found = {0};
    const weft_status status =
        ask->find(self->world, ask->leader_count, &found);
    found.byte_ps = found.byte_ps < least_ps ? least_ps : found.byte_ps;
    if (status == WEFT_OK && found.byte_ps < together->byte_ps) {
        *together = found;
    }
    return status;
}

/* Of each alone, all ranks using nothing else; then of all together. */
static weft_status measure(common *self, const wefti_net_try *ask,
                           wefti_net_figures *figures)
{
    wefti_rail_figures found = {.count = self->count, .alone = {*figures}};
    wefti_port_rails trial = {.small = 0}, rails;
    weft_status status = WEFT_OK;
    for (int r = 1; r < self->count && status == WEFT_OK; r++) {
        wefti_port_rails only = {.small = r};
        only.byte_ps[r] = 1;
        use(self, &only);
        status = ask->find(self->world, ask->leader_count, &found.alone[r]);
    }
    const unsigned worth = worth_trying(&found);
    for (int r = 0; r < self->count; r++) {
        trial.byte_ps[r] = worth >> r & 1 ? found.alone[r].byte_ps : 0;
    }
    trial.small = find_quickest(&found, worth);
    wefti_net_figures together = {.byte_ps = INT64_MAX};
    bool all = false;
    for (int t = 0; t < TRIES && !all && status == WEFT_OK; t++) {
        use(self, &trial);
        status = find_together(self, ask, &trial, &together);
        all = status == WEFT_OK &&
              wefti_net_rails_choose(&found, &together, &rails);
    }
    if (status != WEFT_OK) {
        return status;
    }
    use(self, &rails);
    note(self, &rails);
    say(self, &found, &together, all);
    *figures = all ? together : found.alone[find_fastest(&found)];
    return WEFT_OK;
}

weft_status wefti_net_rails_agree(weft_comm *world, const wefti_net_try *ask,
                                  wefti_net_figures *figures)
{
    wefti_net *net = world->engine->net;
    common self = {.world = world,
                   .net = net,
                   .count = 1,
                   .named = world->tuning.names_rails};
    wefti_port_rails rails = {.byte_ps = {1}};
    note(&self, &rails);
    if (!net->table->use || !(ask || self.named)) {
        return WEFT_OK;
    }
    weft_status status = find_common(&self);
    if (status == WEFT_OK && ask && self.count > 1) {
        status = find_reached(&self, ask);
    }
    if (status != WEFT_OK || self.count == 1) {
        return status;
    }
    if (ask) {
        return measure(&self, ask, figures);
    }
    for (int r = 0; r < self.count; r++) {
        rails.byte_ps[r] = 1;
    }
    use(&self, &rails);
    note(&self, &rails);
    return WEFT_OK;
}
