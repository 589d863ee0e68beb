/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: arrays in the host's memory, brought to a device by pieces, updated
 * there and taken back, hold after some steps what they would if they had been
 * there all the time. Method: the shadow device, which runs what is queued late
 * and in pieces; AdamW on an odd number of elements, so that the last piece is
 * short, with two arrays and with three, the third being what is trained;
 * beside it the same on arrays of the device. Pieces follow each other without
 * a wait of the host, over the ends of steps too.
 */
#include "trainer/optimizer_offload.h"

#include "kernels/math/math_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMS = 10 * 1024 + 7, PIECE = 3 * 1024, STEPS = 4 };

typedef struct fixture {
    weft_device *device;
    weft_stream *compute;
    real *gradient, *values[2]; /* of the device */
    real *kept[WEFTI_OFFLOAD_ARRAYS_MOST];
    double *factor;
} fixture;

static void *make(fixture *self, size_t bytes)
{
    void *made, *start = calloc(1, bytes);
    assert_non_null(start);
    assert_int_equal(weft_device_alloc(self->device, bytes, &made), WEFT_OK);
    assert_int_equal(weft_device_copy(self->device, made, start, bytes, NULL),
                     WEFT_OK);
    free(start);
    return made;
}

static void open_fixture(fixture *self)
{
    const double one = 1;
    real gradient[ELEMS];
    assert_int_equal(weft_device_open("shadow", 0, &self->device), WEFT_OK);
    assert_int_equal(weft_stream_create(self->device, 0, &self->compute),
                     WEFT_OK);
    for (size_t i = 0; i < ELEMS; i++) {
        gradient[i] = (real)(i % 101) - 50;
    }
    self->gradient = make(self, sizeof(gradient));
    self->factor = make(self, sizeof(one));
    for (int i = 0; i < 2; i++) {
        self->values[i] = make(self, sizeof(gradient));
    }
    for (int i = 0; i < WEFTI_OFFLOAD_ARRAYS_MOST; i++) {
        self->kept[i] = make(self, sizeof(gradient));
    }
    assert_int_equal(weft_device_copy(self->device, self->gradient, gradient,
                                      sizeof(gradient), NULL),
                     WEFT_OK);
    assert_int_equal(
        weft_device_copy(self->device, self->factor, &one, sizeof(one), NULL),
        WEFT_OK);
}

static void close_fixture(fixture *self)
{
    weft_stream_destroy(self->compute);
    weft_device_free(self->device, self->gradient);
    weft_device_free(self->device, self->factor);
    for (int i = 0; i < 2; i++) {
        weft_device_free(self->device, self->values[i]);
    }
    for (int i = 0; i < WEFTI_OFFLOAD_ARRAYS_MOST; i++) {
        weft_device_free(self->device, self->kept[i]);
    }
    weft_device_close(self->device);
}

/* A step of elements first .. */
static void update(fixture *self, real *param, real *const arrays[2],
                   size_t first, size_t elems, uint64_t step)
{
    const wefti_adamw_config config = {.lr = 0.01,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .grad_scale = 1,
                                       .step = (int64_t)step};
    const wefti_math_tensor
        trained = wefti_math_flat(param, WEFTI_REAL_DTYPE, elems),
        one = wefti_math_flat(arrays[0], WEFTI_REAL_DTYPE, elems),
        two = wefti_math_flat(arrays[1], WEFTI_REAL_DTYPE, elems),
        grad = wefti_math_flat(self->gradient + first, WEFTI_REAL_DTYPE, elems),
        scale = wefti_math_flat(self->factor, WEFT_DTYPE_F64, 1);
    assert_int_equal(wefti_stream_adamw(self->compute, NULL, &trained, &one,
                                        &two, &grad, &scale, &config),
                     WEFT_OK);
}

/* What is trained is the third array, or values of the device. */
static void update_piece(fixture *self, wefti_offload *offload, uint64_t step,
                         size_t first)
{
    const size_t left = ELEMS - first;
    const size_t elems =
        left < offload->piece_elems ? left : offload->piece_elems;
    real *arrays[WEFTI_OFFLOAD_ARRAYS_MOST] = {NULL};
    assert_int_equal(wefti_offload_bring(offload, first, elems, arrays),
                     WEFT_OK);
    update(self, arrays[2] ? arrays[2] : self->values[0] + first, arrays, first,
           elems, step);
    assert_int_equal(wefti_offload_take(offload, first, elems), WEFT_OK);
}

static void assert_same(fixture *self, const real *got, const real *there)
{
    static real wanted[ELEMS], found[ELEMS];
    assert_int_equal(
        weft_device_copy(self->device, wanted, there, sizeof(wanted), NULL),
        WEFT_OK);
    assert_int_equal(
        weft_device_copy(self->device, found, got, sizeof(found), NULL),
        WEFT_OK);
    assert_memory_equal(found, wanted, sizeof(wanted));
    assert_true(wanted[0] != 0);
}

static void run(size_t arrays, size_t piece_elems)
{
    fixture self = {0};
    wefti_offload *offload;
    open_fixture(&self);
    const wefti_offload given = {.device = self.device,
                                 .compute = self.compute,
                                 .arrays = arrays,
                                 .piece_elems = piece_elems};
    assert_int_equal(wefti_offload_create(&given, ELEMS, &offload), WEFT_OK);
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (size_t first = 0; first < ELEMS; first += piece_elems) {
            update_piece(&self, offload, step, first);
        }
        update(&self, self.values[1], self.kept, 0, ELEMS, step);
    }
    assert_int_equal(weft_stream_wait(self.compute), WEFT_OK);
    assert_int_equal(wefti_offload_wait(offload), WEFT_OK);
    assert_same(&self, offload->host[0], self.kept[0]);
    assert_same(&self, offload->host[1], self.kept[1]);
    assert_same(&self, arrays == 3 ? offload->host[2] : self.values[0],
                self.values[1]);
    wefti_offload_destroy(offload);
    close_fixture(&self);
}

static void test_moments_come_and_go(void **state)
{
    (void)state;
    run(2, PIECE);
}

static void test_masters_too(void **state)
{
    (void)state;
    run(3, PIECE);
}

static void test_two_pieces_and_one(void **state)
{
    (void)state;
    run(2, ELEMS / 2 + 1);
    run(2, ELEMS);
    run(3, ELEMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments_come_and_go),
        cmocka_unit_test(test_masters_too),
        cmocka_unit_test(test_two_pieces_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
