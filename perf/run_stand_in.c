/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/run_stand_in.c - a server that only has a verdict.
 */
#include "perf/run_stand_in.h"

#include <unistd.h>

enum { YEAR_S = 31536000 };

weft_status run_stand_in_start(run_stand_in *self, int nranks, int ended_fd)
{
    wefti_server_config config = {.endpoint = self->endpoint,
                                  .secret = self->secret,
                                  .nranks = nranks,
                                  .home_rank = -1,
                                  .launcher_fd = ended_fd,
                                  .timeout_ms = YEAR_S * INT64_C(1000),
                                  .stays = true};
    weft_status status =
        wefti_endpoint_listen(&config.endpoint, &config.listen_fd);
    if (status == WEFT_OK) {
        status = wefti_server_start(&config, &self->server);
        if (status != WEFT_OK) {
            close(config.listen_fd);
        }
    }
    wefti_secret_fini(&config.secret);
    return status;
}

void run_stand_in_fini(run_stand_in *self)
{
    if (self->server) {
        wefti_server_stop(self->server);
        self->server = NULL;
    }
    wefti_secret_fini(&self->secret);
}
