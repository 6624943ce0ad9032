/* Numbers of float or of bf16, which _rows.c and _adamw.c compute in float, and the processors that they compile for. */

#pragma once

#include <stdint.h>
#include <string.h>

typedef uint16_t Bf16; /* the upper half of a float */

/* Number by number, written so that compilers compute whole registers; inlined where those are known. */
#define INLINE __attribute__((always_inline)) static inline

INLINE float load(const void *from, Py_ssize_t at, int bf16)
{
    if (!bf16) return ((const float *)from)[at];
    const uint32_t bits = (uint32_t)((const Bf16 *)from)[at] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Store a number, in bf16 rounded to the nearest, to the even one between two. */
INLINE void store(void *to, Py_ssize_t at, float x, int bf16)
{
    if (!bf16) {
        ((float *)to)[at] = x;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    ((Bf16 *)to)[at] = (Bf16)(x == x ? rounded : bits >> 16 | 0x40);
}

/* Registers of 256 and of 512 bits, and the size of those that this processor has; 0: any. */
#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET_256 __attribute__((target("avx2,fma")))
#ifdef __clang__
#define TARGET_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define TARGET_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif

static int registers_here(void)
{
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 256 : 0;
}
#else
#define TARGET_256
#define TARGET_512
static int registers_here(void) { return 0; }
#endif
