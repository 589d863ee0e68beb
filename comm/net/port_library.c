/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_library.c - opens the module and takes its table.
 */
#include "comm/net/port_library.h"

#include "base/error.h"
#include "base/log.h"
#include "base/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static const char module_name[] = "weft_net.so";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const wefti_port_table *table; /* guarded by lock; set once */

static void say(wefti_port_tone tone, const char *text)
{
    static const wefti_log_level levels[] = {
        [WEFTI_PORT_TONE_FATAL] = WEFTI_LOG_ERROR,
        [WEFTI_PORT_TONE_WARNING] = WEFTI_LOG_WARN,
        [WEFTI_PORT_TONE_DETAIL] = WEFTI_LOG_DEBUG};
    wefti_log(levels[tone], -1, "%s%s",
              tone == WEFTI_PORT_TONE_FATAL
                  ? "the network library ends this process: "
                  : "",
              text);
}

/* Caller holds the lock. */
static weft_status open_table(void)
{
    char path[PATH_MAX], why[256] = "";
    if (!wefti_module_find(module_name, path)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "ranks that share no memory need the network module "
                           "%s, and it is not here (it is built where "
                           "libucx-dev is installed)",
                           module_name);
    }
    void *handle;
    void *found =
        wefti_module_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE,
                          WEFTI_PORT_SYMBOL, &handle, why, sizeof(why));
    if (!found) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the network module cannot be loaded: %s", why);
    }
    wefti_port_loader *load; /* a function, as POSIX has it */
    memcpy(&load, &found, sizeof(load));
    const wefti_port_table *loaded = load(why, sizeof(why));
    if (!loaded || loaded->version != WEFTI_PORT_VERSION) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the network module %s cannot be used: %s", path,
                           loaded ? "it is of another weft" : why);
    }
    loaded->log_to(say);
    table = loaded;
    return WEFT_OK;
}

weft_status wefti_port_library_open(const wefti_port_table **table_out)
{
    pthread_mutex_lock(&lock);
    weft_status status = table ? WEFT_OK : open_table();
    *table_out = table;
    pthread_mutex_unlock(&lock);
    return status;
}
