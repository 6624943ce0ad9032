/* Products of bytes by panels, with registers of 512 bits, for inference in int8.

   A row of x becomes bytes, byte = round(x / scale) + zero, whose range is that of the row, with 0; a weight has a scale
   for each output, and no zero. VPDPBUSD adds four products to a sum in 32 bits, none of which is rounded. A panel begins
   with the scales of its 16 outputs and the sums of their bytes; then it holds four columns at a time. */

#pragma once

/* The rows of x in bytes. */
typedef struct {
    uint8_t *bytes;
    float *scales;
    int32_t *zeros;
} ByteRows;

#define TARGET_BYTES "avx512f,avx512vnni"
#define HAS_BYTES __builtin_cpu_supports("avx512vnni")

/* Set R rows of y to the products of `width` bytes with P panels, `apart` bytes from each other. By its intrinsic, compilers
   move the sums between registers and memory, and take twice as long. */
#define KERNEL_BYTES(BITS, R, P)                                                                                     \
    __attribute__((target(TARGET_BYTES))) static void kernel_##BITS##_##R##_##P(                                     \
        const uint8_t *x, const float *scales, const int32_t *zeros, const int8_t *panel, Py_ssize_t apart,          \
        Py_ssize_t width, const int8_t *next, Py_ssize_t skip, float *y)                                             \
    {                                                                                                                \
        __m512i sums[R][P];                                                                                          \
        const int8_t *const header = panel;                                                                          \
        panel += HEADER;                                                                                             \
        EACH(R) EACH_PART(P) sums[r][part] = _mm512_setzero_si512();                                                 \
        for (Py_ssize_t i = 0; i < width / 4; i++, panel += 4 * WIDE) {                                              \
            __m512i weights[P];                                                                                      \
            EACH_PART(P) weights[part] = _mm512_loadu_si512(panel + part * apart);                                   \
            if (!(i & skip)) {                                                                                       \
                for (int part = 0; part < P; part++) __builtin_prefetch(next + part * apart);                        \
                next += 4 * WIDE;                                                                                    \
            }                                                                                                        \
            EACH(R) {                                                                                                \
                int four;                                                                                            \
                memcpy(&four, x + r * width + 4 * i, sizeof four);                                                   \
                const __m512i values = _mm512_set1_epi32(four);                                                      \
                EACH_PART(P)                                                                                         \
                __asm__("vpdpbusd %2, %1, %0" : "+v"(sums[r][part]) : "v"(values), "v"(weights[part]));              \
            }                                                                                                        \
        }                                                                                                            \
        EACH(R) EACH_PART(P) {                                                                                       \
            const __m512 scale = _mm512_loadu_ps(header + part * apart);                                             \
            const __m512i all = _mm512_loadu_si512(header + part * apart + HEADER / 2);                              \
            const __m512i sum = _mm512_sub_epi32(sums[r][part], _mm512_mullo_epi32(all, _mm512_set1_epi32(zeros[r]))); \
            const __m512 wide = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);                                       \
            _mm512_storeu_ps(y + (r * P + part) * WIDE, _mm512_mul_ps(wide, _mm512_set1_ps(scales[r])));             \
        }                                                                                                            \
    }

typedef void (*KernelBytes)(const uint8_t *, const float *, const int32_t *, const int8_t *, Py_ssize_t, Py_ssize_t,
                            const int8_t *, Py_ssize_t, float *);
WHOLE(KERNEL_BYTES, BYTES, 1)
WHOLE(KERNEL_BYTES, BYTES, 2)
static const KernelBytes panels_bytes[][TALL_512 + 1] = {{NULL, WHOLE(NAME, BYTES, 1)}, {NULL, WHOLE(NAME, BYTES, 2)}};

__attribute__((target("avx512f"))) static inline __m512 number_of(const void *x, Py_ssize_t at, int bf16)
{
    return bf16 ? widened((const Bf16 *)x + at) : _mm512_loadu_ps((const float *)x + at);
}

/* Set a row of bytes, its scale and its zero; where a number is infinite or none, the scale is none. */
__attribute__((target("avx512f"))) static void to_bytes(const void *x, int bf16, Py_ssize_t width, uint8_t *bytes,
                                                        float *scale, int32_t *zero)
{
    __m512 least = _mm512_setzero_ps(), most = _mm512_setzero_ps(), none = _mm512_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += WIDE) {
        const __m512 wide = number_of(x, i, bf16);
        least = _mm512_min_ps(wide, least), most = _mm512_max_ps(wide, most);
        none = _mm512_fmadd_ps(wide, _mm512_setzero_ps(), none);
    }
    const float low = _mm512_reduce_min_ps(least) / 255, step = _mm512_reduce_max_ps(most) / 255 - low;
    const float inverse = step >= FLT_MIN ? 1 / step : 0; /* smaller ones have no inverse */
    const __m512i shift = _mm512_set1_epi32((int32_t)lrintf(-255 * low * inverse));
    for (Py_ssize_t i = 0; i < width; i += WIDE) {
        const __m512 wide = _mm512_mul_ps(number_of(x, i, bf16), _mm512_set1_ps(inverse));
        const __m512i whole = _mm512_add_epi32(_mm512_cvtps_epi32(wide), shift);
        _mm_storeu_si128((__m128i *)(bytes + i),
                         _mm512_cvtusepi32_epi8(_mm512_max_epi32(whole, _mm512_setzero_si512())));
    }
    *scale = step + _mm512_reduce_add_ps(none);
    *zero = _mm512_cvtsi512_si32(shift);
}

/* Set rows of y to a tile with what is added to it, and GELU, in float; see `finish_bf16`. */
__attribute__((target("avx512f"))) static void finish_float32(const Product *p, const float *tile, Py_ssize_t top,
                                                              Py_ssize_t count, Py_ssize_t column, int panels)
{
    for (Py_ssize_t row = top; row < top + count; row++)
        for (Py_ssize_t from = column; from < column + panels * WIDE; from += WIDE, tile += WIDE) {
            const Py_ssize_t at = row * p->outputs + from;
            __m512 sum = _mm512_loadu_ps(tile);
            if (p->bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps((const float *)p->bias + from));
            if (p->onto) sum = _mm512_add_ps(sum, _mm512_loadu_ps((const float *)p->onto + at));
            _mm512_storeu_ps((float *)p->y + at, sum);
            if (p->gelu == 1) apply_gelu((float *)p->y + at, 1, p->outputs);
        }
}

/* Compute what `multiply_panels` does. */
static void multiply_panels_bytes(const Product *p, const ByteRows *rows, int bf16, Py_ssize_t top, Py_ssize_t count,
                                  Py_ssize_t column, int panels)
{
    const Py_ssize_t blocks = (count + TALL_512 - 1) / TALL_512, fetching = fetching_blocks(blocks);
    const int8_t *panel = (const int8_t *)p->panels + column / WIDE * p->apart, *next = panel + panels * p->apart;
    float tile[TALL_512 * 2 * WIDE];
    for (Py_ssize_t block = 0; block < blocks; block++) {
        const Py_ssize_t row = top + count * block / blocks, stop = top + count * (block + 1) / blocks;
        panels_bytes[panels - 1][stop - row](rows->bytes + row * p->width, rows->scales + row, rows->zeros + row, panel,
                                             p->apart, p->width, next, block < fetching ? fetching - 1 : PY_SSIZE_T_MAX,
                                             tile);
        next += block < fetching ? p->apart / fetching / (4 * WIDE) * (4 * WIDE) : 0;
        if (bf16) finish_bf16(p, tile, row, stop - row, column, panels);
        else finish_float32(p, tile, row, stop - row, column, panels);
    }
}
