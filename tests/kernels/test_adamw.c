/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     AdamW follows its paper's recurrence, and any cut of the range into
 *          pieces gives the same bits: shards may be cut anywhere.
 * Method   Ten steps against the recurrence in double; then the same steps in
 *          one piece and in pieces of every length from 1 to 40.
 */
#include "tests/kernels/math_check.h"

enum { ELEMS = 203, STEPS = 10 };

static wefti_adamw_config config_at(int64_t step)
{
    return (wefti_adamw_config){.lr = 1e-2,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .eps = 1e-8,
                                .weight_decay = 0.1,
                                .grad_scale = 0.5,
                                .step = step};
}

static void reference_step(double *param, double *m, double *v,
                           const real *grad, const wefti_adamw_config *c)
{
    for (size_t i = 0; i < ELEMS; i++) {
        double g = c->grad_scale * (double)grad[i];

        m[i] = c->beta1 * m[i] + (1 - c->beta1) * g;
        v[i] = c->beta2 * v[i] + (1 - c->beta2) * g * g;

        double mh = m[i] / (1 - pow(c->beta1, (double)c->step));
        double vh = v[i] / (1 - pow(c->beta2, (double)c->step));

        param[i] -=
            c->lr * (mh / (sqrt(vh) + c->eps) + c->weight_decay * param[i]);
    }
}

static void test_adamw_ten_steps_match_reference(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        real *param = check_alloc_random(&random, ELEMS, 1);
        real m[ELEMS] = {0}, v[ELEMS] = {0};
        double want[ELEMS], want_m[ELEMS] = {0}, want_v[ELEMS] = {0};

        for (size_t i = 0; i < ELEMS; i++)
            want[i] = (double)param[i];
        for (int64_t step = 1; step <= STEPS; step++) {
            wefti_adamw_config config = config_at(step);
            real *grad = check_alloc_random(&random, ELEMS, 1);

            math->adamw(param, m, v, grad, ELEMS, &config);
            reference_step(want, want_m, want_v, grad, &config);
            free(grad);
        }
        check_all_near(param, want, ELEMS, TOLERANCE(2e-6, 1e-14), 0, "param");
        check_all_near(m, want_m, ELEMS, TOLERANCE(1e-6, 1e-15), 0, "m");
        check_all_near(v, want_v, ELEMS, TOLERANCE(1e-6, 1e-15), 0, "v");
        free(param);
    }
}

static void test_adamw_any_cut_gives_same_bits(void **state)
{
    check_random random = check_seed();
    wefti_adamw_config config = config_at(3);
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t piece = 1; piece <= 40; piece++) {
        real *whole[3], *cut[3];
        real *grad = check_alloc_random(&random, ELEMS, 1);

        for (int n = 0; n < 3; n++) {
            whole[n] = check_alloc_random(&random, ELEMS, 1);
            for (size_t i = 0; n == 2 && i < ELEMS; i++)
                whole[n][i] = (real)fabs((double)whole[n][i]);
            cut[n] = check_alloc_copy(whole[n], ELEMS);
        }
        math->adamw(whole[0], whole[1], whole[2], grad, ELEMS, &config);
        for (size_t i = 0; i < ELEMS; i += piece)
            math->adamw(cut[0] + i, cut[1] + i, cut[2] + i, grad + i,
                        ELEMS - i < piece ? ELEMS - i : piece, &config);
        for (int n = 0; n < 3; n++) {
            check_same_bits(whole[n], cut[n], ELEMS);
            free(whole[n]);
            free(cut[n]);
        }
        free(grad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw_ten_steps_match_reference),
        cmocka_unit_test(test_adamw_any_cut_gives_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
