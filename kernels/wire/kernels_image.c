/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/kernels_image.c - what weft_kernels.so, and
 * weft_math_kernels.so, hold: the file that the build says
 * (WEFTI_KERNELS_FILE), byte for byte, and a zero behind it, which ends PTX.
 * device/cuda_module.c gives it to the CUDA driver.
 */
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl weft_kernels_image\n"
        ".type weft_kernels_image, STT_OBJECT\n"
        "weft_kernels_image:\n"
        ".incbin \"" WEFTI_KERNELS_FILE "\"\n"
        ".byte 0\n"
        ".size weft_kernels_image, . - weft_kernels_image\n"
        ".previous\n");

extern const unsigned char weft_kernels_image[];
