/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/port_ucx.c - the module on UCX: one context, one worker, and an
 * endpoint per peer, made when something is sent to it.
 *
 * Messages are active messages, eager always: the rendezvous would make a
 * simultaneous exchange over tcp half duplex. Transports and devices are pinned
 * in the configuration, so that UCX looks at nothing else.
 */
#include "comm/net/port.h"

#include "comm/net/port_ucx_admission.h"
#include "comm/net/port_ucx_list.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* On the address: how many places there are, the places, UCX's own. */
enum { MESSAGE_ID = 1, PLACES_MOST = 16 };

/* A message under way: UCX needs its header for as long. */
typedef struct record {
    struct record *next;  /* of the free ones */
    struct record *older; /* of all */
    wefti_port *port;
    unsigned char header[WEFTI_PORT_HEADER_BYTES];
} record;

typedef struct peer {
    wefti_port *port;
    const unsigned char *address;
    ucp_ep_h endpoint; /* NULL: not connected */
    bool lost;
} peer;

struct wefti_port {
    wefti_port_config config;
    wefti_admission *admission;
    int place_count; /* that the admission guards */
    unsigned char places[PLACES_MOST * WEFTI_ADMISSION_PLACE_BYTES];
    ucp_context_h context;
    ucp_worker_h worker;
    peer *peers; /* [npeers] */
    record *records, *records_free;
    size_t unsent;
    int event_fd;
};

/* Alone: a function, set before UCX can log. */
static _Atomic(wefti_port_say *) say_to;

/* UCX prints to stdout; a library has no business there. */
__attribute__((format(printf, 6, 0))) static ucs_log_func_rc_t
take_log(const char *file, unsigned line, const char *function,
         ucs_log_level_t level, const ucs_log_component_config_t *component,
         const char *format, va_list args)
{
    (void)function;
    (void)component;
    wefti_port_say *say = say_to;
    if (level <= UCS_LOG_LEVEL_WARN && say) {
        const char *name = strrchr(file, '/');
        char text[400];
        int used = snprintf(text, sizeof(text),
                            "ucx %.80s:%u: ", name ? name + 1 : file, line);
        vsnprintf(text + used, sizeof(text) - (size_t)used, format, args);
        say(WEFTI_PORT_TONE_DETAIL, text);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

extern void ucs_fatal_error_format(const char *file, unsigned line,
                                   const char *function, const char *format,
                                   ...);

/*
 * UCX calls this where it cannot go on, with what it believed; it ends the
 * process. A word of weft's goes before that.
 */
__attribute__((visibility("default"), noreturn, format(printf, 4, 5))) void
ucs_fatal_error_format(const char *file, unsigned line, const char *function,
                       const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    wefti_port_say *say = say_to;
    if (say) {
        say(WEFTI_PORT_TONE_FATAL, text);
    }
    void (*real)(const char *, unsigned, const char *, const char *);
    void *found = dlsym(RTLD_NEXT, "ucs_fatal_error_message");
    memcpy(&real, &found, sizeof(real));
    if (real) {
        real(file, line, function, text); /* does not come back */
    }
    __builtin_trap();
}

/*
 * UCX calls this as it is loaded, and it rewrites the process's mmap and munmap
 * so that UCX is told what they do. A library inside somebody else's process
 * must not, and over tcp nothing needs it. The name is found here first; the
 * real one is called with hooks off.
 */
__attribute__((visibility("default"))) void
ucm_set_global_opts(const ucm_global_config_t *wanted)
{
    ucm_global_config_t options = *wanted;
    options.enable_events = 0;
    options.mmap_hook_mode = UCM_MMAP_HOOK_NONE;
    options.enable_malloc_hooks = 0;
    options.enable_malloc_reloc = 0;
    options.cuda_hook_modes = 0;
    void (*real)(const ucm_global_config_t *options);
    void *found = dlsym(RTLD_NEXT, "ucm_set_global_opts");
    memcpy(&real, &found, sizeof(real));
    if (real) {
        real(&options);
    }
}

static void log_to(wefti_port_say *say)
{
    say_to = say;
    ucs_log_push_handler(take_log);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static ucs_status_t arrived(void *argument, const void *header,
                            size_t header_bytes, void *data, size_t data_bytes,
                            const ucp_am_recv_param_t *param)
{
    wefti_port *port = argument;
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        port->config.arrived(port->config.context, header, header_bytes, data,
                             data_bytes);
    }
    return UCS_OK;
}

static void lose(peer *self, ucs_status_t status)
{
    if (!self->lost) {
        self->lost = true;
        wefti_port *port = self->port;
        port->config.lost(port->config.context, (int)(self - port->peers),
                          ucs_status_string(status));
    }
}

static void failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    lose(argument, status);
}

/*
 * So that a chunk of a large operation, of 128 KiB, comes in one piece, which
 * is then handed over where it was received: else UCX puts it together from
 * pieces of 64 KiB first. It costs nothing but speed where UCX has no such
 * setting, or no tcp.
 */
static void ask_for_whole_chunks(ucp_config_t *settings)
{
    (void)ucp_config_modify(settings, "RX_SEG_SIZE", "144k");
}

/*
 * Else the first message to a host that does not answer waits for the kernel to
 * give up connecting, two minutes long, and the thread that posts it waits too.
 * Likewise unknown to some.
 */
static void ask_not_to_wait(ucp_config_t *settings)
{
    (void)ucp_config_modify(settings, "CONN_NB", "y");
}

static ucs_status_t configure(const wefti_port_config *config,
                              ucp_config_t **settings_out)
{
    char rails[8];
    ucs_status_t status = ucp_config_read(NULL, NULL, settings_out);
    if (status != UCS_OK) {
        return status;
    }
    snprintf(rails, sizeof(rails), "%d", config->rails);
    const char *const wanted[][2] = {{"TLS", config->transports},
                                     {"NET_DEVICES", config->devices},
                                     {"RNDV_THRESH", "inf"},
                                     {"MAX_EAGER_RAILS", rails}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        status = ucp_config_modify(*settings_out, wanted[i][0], wanted[i][1]);
        if (status != UCS_OK) {
            ucp_config_release(*settings_out);
            return status;
        }
    }
    ask_for_whole_chunks(*settings_out);
    ask_not_to_wait(*settings_out);
    return UCS_OK;
}

static ucs_status_t open_context(wefti_port *port)
{
    ucp_config_t *settings;
    const ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = (size_t)port->config.npeers};
    ucs_status_t status = configure(&port->config, &settings);
    if (status == UCS_OK) {
        status = ucp_init(&params, settings, &port->context);
        ucp_config_release(settings);
    }
    return status;
}

static ucs_status_t open_worker(wefti_port *port)
{
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const ucp_am_handler_param_t handler = {.field_mask =
                                                UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                            .id = MESSAGE_ID,
                                            .cb = arrived,
                                            .arg = port};
    wefti_admission_guard(port->admission);
    ucs_status_t status =
        ucp_worker_create(port->context, &params, &port->worker);
    wefti_admission_guard(NULL);
    if (status == UCS_OK) {
        status = ucp_worker_set_am_recv_handler(port->worker, &handler);
    }
    if (status == UCS_OK) {
        status = ucp_worker_get_efd(port->worker, &port->event_fd);
    }
    return status;
}

static void tear(wefti_port *port)
{
    if (port->worker) {
        ucp_worker_destroy(port->worker);
    }
    if (port->context) {
        ucp_cleanup(port->context);
    }
    wefti_admission_close(port->admission);
    while (port->records) {
        record *older = port->records->older;
        free(port->records);
        port->records = older;
    }
    free(port->peers);
    free(port);
}

static void warn_unguarded(void)
{
    wefti_port_say *say = say_to;
    if (say) {
        say(WEFTI_PORT_TONE_WARNING,
            "UCX was in this process before weft: whoever connects to its tcp "
            "port is believed (docs/network.md)");
    }
}

static int open_port(const wefti_port_config *config, wefti_port **port_out,
                     char *why_out, size_t why_bytes)
{
    wefti_port *port = calloc(1, sizeof(*port));
    peer *peers = calloc((size_t)config->npeers, sizeof(*peers));
    wefti_admission *admission = wefti_admission_open(config->proof);
    if (!port || !peers || !admission) {
        free(port);
        free(peers);
        wefti_admission_close(admission);
        snprintf(why_out, why_bytes, "no memory for %d peers", config->npeers);
        return -1;
    }
    port->config = *config;
    port->admission = admission;
    port->peers = peers;
    for (int i = 0; i < config->npeers; i++) {
        peers[i].port = port;
    }
    ucs_status_t status = open_context(port);
    if (status == UCS_OK) {
        status = open_worker(port);
    }
    if (status != UCS_OK) {
        snprintf(why_out, why_bytes, "UCX with transports %s on %s: %s",
                 config->transports, config->devices,
                 ucs_status_string(status));
        tear(port);
        return -1;
    }
    port->place_count =
        wefti_admission_list(admission, PLACES_MOST, port->places);
    if (port->place_count == 0 && strstr(config->transports, "tcp")) {
        warn_unguarded();
    }
    *port_out = port;
    return 0;
}

static size_t get_address(wefti_port *port,
                          unsigned char address_out[WEFTI_PORT_ADDRESS_BYTES])
{
    ucp_worker_attr_t about = {
        .field_mask =
            UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    if (ucp_worker_query(port->worker, &about) != UCS_OK) {
        return 0;
    }
    const size_t places =
        (size_t)port->place_count * WEFTI_ADMISSION_PLACE_BYTES;
    const size_t bytes = 1 + places + about.address_length;
    if (bytes <= WEFTI_PORT_ADDRESS_BYTES) {
        address_out[0] = (unsigned char)port->place_count;
        memcpy(address_out + 1, port->places, places);
        memcpy(address_out + 1 + places, about.address, about.address_length);
    }
    ucp_worker_release_address(port->worker, about.address);
    return bytes <= WEFTI_PORT_ADDRESS_BYTES ? bytes : 0;
}

static int connect_peer(wefti_port *port, int peer_index,
                        const unsigned char *address, size_t address_bytes,
                        char *why_out, size_t why_bytes)
{
    const int count = address_bytes > 0 ? address[0] : 0;
    const size_t before = 1 + (size_t)count * WEFTI_ADMISSION_PLACE_BYTES;
    const char *why = NULL;
    if (address_bytes <= before) {
        why = "its address is no address";
    } else if (count > 0 && port->place_count == 0) {
        why = "it lets in only who shows that it is of this job, which UCX "
              "cannot do here, as it was in this process before weft";
    } else if (!wefti_admission_know(port->admission, count, address + 1)) {
        why = "no memory for its address";
    }
    if (why) {
        snprintf(why_out, why_bytes, "%s", why);
        return -1;
    }
    port->peers[peer_index].address = address + before;
    return 0;
}

static void make_endpoint(peer *self)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)self->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = failed, .arg = self}};
    ucs_status_t status =
        ucp_ep_create(self->port->worker, &params, &self->endpoint);
    if (status != UCS_OK) {
        self->endpoint = NULL;
        lose(self, status);
    }
}

static record *take_record(wefti_port *port)
{
    record *taken = port->records_free;
    if (taken) {
        port->records_free = taken->next;
        return taken;
    }
    taken = malloc(sizeof(*taken));
    if (taken) {
        taken->port = port;
        taken->older = port->records;
        port->records = taken;
    }
    return taken;
}

static void give_record(record *done)
{
    done->next = done->port->records_free;
    done->port->records_free = done;
}

static void sent(void *request, ucs_status_t status, void *argument)
{
    (void)status; /* a failure shows at the endpoint */
    record *done = argument;
    done->port->unsent--;
    give_record(done);
    ucp_request_free(request);
}

static void send_message(wefti_port *port, const wefti_port_message *message)
{
    peer *to = &port->peers[message->peer];
    if (!to->endpoint && !to->lost) {
        make_endpoint(to);
    }
    if (to->lost) {
        return;
    }
    record *under_way = take_record(port);
    if (!under_way) {
        lose(to, UCS_ERR_NO_MEMORY);
        return;
    }
    memcpy(under_way->header, message->header, message->header_bytes);
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = sent,
        .user_data = under_way,
        .memory_type = message->memory == WEFTI_PORT_MEMORY_CUDA
                           ? UCS_MEMORY_TYPE_CUDA
                           : UCS_MEMORY_TYPE_HOST};
    ucs_status_ptr_t request = ucp_am_send_nbx(
        to->endpoint, MESSAGE_ID, under_way->header, message->header_bytes,
        message->data, message->data_bytes, &param);
    if (UCS_PTR_IS_PTR(request)) {
        port->unsent++;
        return;
    }
    give_record(under_way);
    if (UCS_PTR_IS_ERR(request)) {
        lose(to, UCS_PTR_STATUS(request));
    }
}

/* UCX sends each by itself. */
static void hold(wefti_port *port, bool on)
{
    (void)port;
    (void)on;
}

static bool progress(wefti_port *port)
{
    return ucp_worker_progress(port->worker) != 0;
}

static bool arm(wefti_port *port)
{
    return ucp_worker_arm(port->worker) == UCS_OK;
}

static int get_event_fd(wefti_port *port)
{
    return port->event_fd;
}

static size_t count_unsent(wefti_port *port)
{
    return port->unsent;
}

static size_t count_queued(wefti_port *port, int peer_index)
{
    (void)peer_index;
    return port->unsent;
}

/* Ends a peer's endpoint; NULL once that is done, else what is awaited. */
static void *begin_close(peer *self, bool force)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags =
                                           force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    ucs_status_ptr_t request = ucp_ep_close_nbx(self->endpoint, &param);
    self->endpoint = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

static void close_port(wefti_port *port, int linger_ms)
{
    const int64_t until_ms = now_ms() + linger_ms;
    while (port->unsent > 0 && now_ms() < until_ms) {
        (void)ucp_worker_progress(port->worker);
    }
    for (int i = 0; i < port->config.npeers; i++) {
        peer *self = &port->peers[i];
        if (!self->endpoint) {
            continue;
        }
        bool force = self->lost || port->unsent > 0;
        self->lost = true; /* whatever happens now is no news */
        void *request = begin_close(self, force);
        while (request && ucp_request_check_status(request) == UCS_INPROGRESS) {
            if (now_ms() > until_ms + linger_ms) {
                break; /* the worker's end takes the rest along */
            }
            (void)ucp_worker_progress(port->worker);
        }
        if (request) {
            ucp_request_free(request);
        }
    }
    for (int polls = 0; port->unsent > 0 && polls < 1000; polls++) {
        (void)ucp_worker_progress(port->worker);
    }
    tear(port);
}

extern const wefti_port_table wefti_port_module;
__attribute__((visibility("default")))
const wefti_port_table wefti_port_module = {
    .version = WEFTI_PORT_VERSION,
    .name = "UCX",
    .log_to = log_to,
    .open = open_port,
    .address = get_address,
    .connect = connect_peer,
    .send = send_message,
    .hold = hold,
    .progress = progress,
    .arm = arm,
    .event_fd = get_event_fd,
    .unsent = count_unsent,
    .queued = count_queued,
    .close = close_port,
    .list = wefti_port_ucx_list,
};
