/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    ranks find each other by a file and by torchrun's variables; weft's
 *         own variables come first; what is missing is named.
 * Method  worlds of processes whose environment is replaced before they create
 *         their communicator; stale files that point at no process and at
 *         another job's; a file that others can read. Refusals in this process.
 */
#include "base/clock.h"
#include "tests/comm/crowd.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { RANKS = 3 };

static char folder[64], path[80];

/* What a launcher of another kind leaves. */
typedef struct scene {
    bool file, torchrun, both;
    int port;
} scene;

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static void set_torchrun(int rank, int nranks, int port)
{
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", nranks);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
}

static void clear_weft(void)
{
    unsetenv("WEFT_RANK");
    unsetenv("WEFT_NRANKS");
    unsetenv("WEFT_RENDEZVOUS");
    unsetenv("WEFT_RENDEZVOUS_FD");
    unsetenv("WEFT_SECRET");
}

static void clear_torchrun(void)
{
    unsetenv("RANK");
    unsetenv("LOCAL_RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
}

static void before(int rank, void *context)
{
    const scene *own = context;
    if (own->file) {
        char text[96];
        snprintf(text, sizeof(text), "file:%s", path);
        setenv("WEFT_RENDEZVOUS", text, 1);
        unsetenv("WEFT_SECRET");
    }
    if (own->torchrun && !own->both) {
        clear_weft();
        set_torchrun(rank, RANKS, own->port);
    }
    if (own->both) { /* torchrun's world is another one, of a rank that lies */
        set_torchrun(0, 77, own->port);
    }
}

/* A few operations, and the ranks have the right numbers. */
static int work(weft_comm *comm, void *context)
{
    int32_t rank = weft_comm_get_rank(comm), sum = 0;
    (void)context;
    weft_status status = weft_allreduce(&rank, &sum, 1, WEFT_DTYPE_I32,
                                        WEFT_REDOP_SUM, comm, NULL);
    return status != WEFT_OK || sum != RANKS * (RANKS - 1) / 2 ||
           weft_comm_get_nranks(comm) != RANKS;
}

static int run(const scene *own)
{
    struct world world = {.nranks = RANKS,
                          .config.timeout_ms = 20000,
                          .call = work,
                          .context = (void *)own,
                          .before = before};
    return world_run_processes(&world);
}

static void write_file(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void assert_no_file(void)
{
    assert_int_equal(access(path, F_OK), -1);
}

static const char digits[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void test_file_brings_ranks_together_and_goes(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(run(&(scene){.file = true}), 0);
        assert_no_file();
    }
}

static void test_file_of_an_earlier_job_is_passed_over(void **state)
{
    char text[160];
    (void)state;
    snprintf(text, sizeof(text), "weft 127.0.0.1:%d %s", crowd_free_port(),
             digits);
    write_file(text, 0600);
    assert_int_equal(run(&(scene){.file = true}), 0);
    assert_no_file();
    write_file("half an invi", 0600);
    assert_int_equal(run(&(scene){.file = true}), 0);
    assert_no_file();
}

/* A process of a job that has the stale file's port, and another secret. */
static pid_t start_stranger(int *port_out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        weft_unique_id id;
        weft_comm *comm;
        weft_comm_config config = {.size_bytes = sizeof(config),
                                   .id = &id,
                                   .nranks = 2,
                                   .timeout_ms = 1500};
        bool made = weft_unique_id_create(&id) == WEFT_OK;
        int port = id.bytes[47] << 8 | id.bytes[48]; /* see unique_id.c */
        made = made && write(ends[1], &port, sizeof(port)) == sizeof(port);
        _exit(!made || weft_comm_create(&config, &comm) != WEFT_ERR_TIMEOUT);
    }
    assert_int_equal(read(ends[0], port_out, sizeof(*port_out)),
                     sizeof(*port_out));
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void test_file_that_points_at_another_job_is_passed_over(void **state)
{
    char text[160];
    int port, status;
    (void)state;
    pid_t stranger = start_stranger(&port);
    snprintf(text, sizeof(text), "weft 127.0.0.1:%d %s", port, digits);
    write_file(text, 0600);
    assert_int_equal(run(&(scene){.file = true}), 0);
    assert_no_file();
    assert_int_equal(waitpid(stranger, &status, 0), stranger);
    assert_int_equal(status, 0);
}

/* Creates here and now; the status, and the text in weft_error_text(). */
static weft_status create(int rank)
{
    weft_comm *comm;
    set_number("WEFT_RANK", rank);
    set_number("WEFT_NRANKS", RANKS);
    weft_comm_config config = {.size_bytes = sizeof(config), .timeout_ms = 300};
    return weft_comm_create(&config, &comm);
}

static void assert_text(const char *wanted)
{
    if (!strstr(weft_error_text(), wanted)) {
        fail_msg("\"%s\" lacks \"%s\"", weft_error_text(), wanted);
    }
}

static void test_file_refuses_what_is_not_safe_or_not_there(void **state)
{
    char text[96];
    (void)state;
    setenv("WEFT_RENDEZVOUS", "file:meet", 1);
    assert_int_equal(create(1), WEFT_ERR_INVALID);
    assert_text("WEFT_RENDEZVOUS=file:meet: allowed");
    snprintf(text, sizeof(text), "file:%s", path);
    setenv("WEFT_RENDEZVOUS", text, 1);
    assert_int_equal(create(1), WEFT_ERR_TIMEOUT);
    assert_text("rank 0 has not written it");
    write_file("weft 127.0.0.1:1 00", 0644);
    assert_int_equal(create(1), WEFT_ERR_INVALID);
    assert_text("mode 0644 lets others in");
    assert_int_equal(unlink(path), 0);
    setenv("WEFT_RENDEZVOUS", "file:/no/such/folder/meet", 1);
    assert_int_equal(create(0), WEFT_ERR_SYSTEM);
    assert_text("No such file or directory");
    clear_weft();
}

static void test_torchrun_brings_ranks_together(void **state)
{
    (void)state;
    int port = crowd_free_port() - 1;
    assert_int_equal(run(&(scene){.torchrun = true, .port = port}), 0);
    set_number("WEFT_PORT", crowd_free_port());
    assert_int_equal(run(&(scene){.torchrun = true, .port = 1}), 0);
    setenv("WEFT_SECRET", "a secret for torchrun", 1);
    assert_int_equal(run(&(scene){.torchrun = true, .port = 1}), 0);
    unsetenv("WEFT_SECRET");
    unsetenv("WEFT_PORT");
}

static void test_torchrun_comes_after_weft_variables(void **state)
{
    (void)state;
    scene own = {.torchrun = true, .both = true, .port = crowd_free_port()};
    assert_int_equal(run(&own), 0);
}

static void test_torchrun_names_what_it_lacks(void **state)
{
    weft_comm *comm;
    (void)state;
    weft_comm_config config = {.size_bytes = sizeof(config), .timeout_ms = 300};
    static const struct {
        const char *name, *value, *text;
    } cases[] = {
        {"RANK", "3", "RANK=3: allowed is a whole number from 0 to 2"},
        {"WORLD_SIZE", "many", "WORLD_SIZE=many: allowed"},
        {"MASTER_PORT", "70000", "MASTER_PORT=70000: allowed"},
        {"MASTER_ADDR", "192.0.2.1", "set WEFT_SECRET or WEFT_SECRET_FILE"},
        {"WEFT_PORT", "0", "WEFT_PORT=0: allowed"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        set_torchrun(1, RANKS, 29500);
        setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(weft_comm_create(&config, &comm), WEFT_ERR_INVALID);
        assert_text(cases[i].text);
        unsetenv("WEFT_PORT");
    }
    set_torchrun(0, 1, 29500);
    assert_int_equal(weft_comm_create(&config, &comm), WEFT_OK);
    assert_int_equal(weft_comm_get_nranks(comm), 1);
    weft_comm_destroy(comm);
    clear_torchrun();
}

/* What is logged while a communicator is made, into text. */
static weft_status create_logged(weft_comm **comm_out, char *text, size_t room)
{
    FILE *log = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_true(log && kept >= 0);
    assert_true(dup2(fileno(log), STDERR_FILENO) >= 0);
    weft_status status = weft_comm_create(NULL, comm_out);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(log);
    text[fread(text, 1, room - 1, log)] = '\0';
    fclose(log);
    return status;
}

static void test_torchrun_without_an_address_warns_by_name(void **state)
{
    static const struct {
        const char *unset, *size, *nranks, *text;
    } cases[] = {
        {"MASTER_ADDR", "2", NULL, "WORLD_SIZE=2 is set, but MASTER_ADDR is"},
        {"RANK", "2", NULL, "WORLD_SIZE=2 is set, but RANK is not"},
        {"MASTER_ADDR", "1", NULL, NULL},
        {"MASTER_ADDR", "2", "1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_comm *comm;
        char text[1024];
        set_torchrun(0, 2, 29500);
        unsetenv(cases[i].unset);
        setenv("WORLD_SIZE", cases[i].size, 1);
        if (cases[i].nranks) {
            setenv("WEFT_NRANKS", cases[i].nranks, 1);
        }
        assert_int_equal(create_logged(&comm, text, sizeof(text)), WEFT_OK);
        assert_int_equal(weft_comm_get_nranks(comm), 1);
        weft_comm_destroy(comm);
        unsetenv("WEFT_NRANKS");
        if (cases[i].text) {
            assert_non_null(strstr(text, cases[i].text));
        } else {
            assert_string_equal(text, "");
        }
    }
    clear_torchrun();
}

static int set_up(void **state)
{
    (void)state;
    clear_weft();
    clear_torchrun();
    snprintf(folder, sizeof(folder), "/tmp/weft-source-XXXXXX");
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/meet", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_brings_ranks_together_and_goes),
        cmocka_unit_test(test_file_of_an_earlier_job_is_passed_over),
        cmocka_unit_test(test_file_that_points_at_another_job_is_passed_over),
        cmocka_unit_test(test_file_refuses_what_is_not_safe_or_not_there),
        cmocka_unit_test(test_torchrun_brings_ranks_together),
        cmocka_unit_test(test_torchrun_comes_after_weft_variables),
        cmocka_unit_test(test_torchrun_names_what_it_lacks),
        cmocka_unit_test(test_torchrun_without_an_address_warns_by_name),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
