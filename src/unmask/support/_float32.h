/* Products in float32 by panels, with registers of 256 or 512 bits, and what follows them. */

#pragma once


typedef float Vector256 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float Vector512 __attribute__((vector_size(64), aligned(4), may_alias));
#define TARGET_256 "avx2,fma"
#define TARGET_512 "avx512f"

/* unrolled before arrays are placed, so that `sums` are in registers */
#define EACH(R) _Pragma("GCC unroll 12") for (int r = 0; r < R; r++)
#define EACH_PART(P) _Pragma("GCC unroll 2") for (int part = 0; part < P; part++)

/* Set R rows of y to the sums of `depth` products with P registers, plus `bias` and `onto`; fetch what follows `next`.

   The registers are the two halves of a panel or, with 512 bits, up to two panels: `apart` numbers from each other. */
#define KERNEL(BITS, R, P)                                                                                           \
    __attribute__((target(TARGET_##BITS))) static void kernel_##BITS##_##R##_##P(                                    \
        const float *x, Py_ssize_t stride, Py_ssize_t step, const float *panel, Py_ssize_t apart, Py_ssize_t depth,  \
        const float *next, Py_ssize_t skip, const float *bias, const float *onto, float *y, Py_ssize_t outputs)      \
    {                                                                                                                \
        enum { LANES = BITS / 32 };                                                                                  \
        Vector##BITS sums[R][P];                                                                                     \
        EACH(R) EACH_PART(P) sums[r][part] = (Vector##BITS){0};                                                      \
        for (Py_ssize_t i = 0; i < depth; i++, panel += WIDE, x += step) {                                           \
            Vector##BITS weights[P];                                                                                 \
            EACH_PART(P) weights[part] = *(const Vector##BITS *)(panel + part * apart);                              \
            if (!(i & skip)) {                                                                                       \
                for (int part = 0; part < P * LANES / WIDE; part++) __builtin_prefetch(next + part * apart);         \
                next += WIDE;                                                                                        \
            }                                                                                                        \
            EACH(R) {                                                                                                \
                const float value = x[r * stride];                                                                   \
                EACH_PART(P) sums[r][part] += value * weights[part];                                                 \
            }                                                                                                        \
        }                                                                                                            \
        EACH(R) EACH_PART(P) {                                                                                       \
            Vector##BITS sum = sums[r][part];                                                                        \
            const Py_ssize_t column = part * LANES;                                                                  \
            if (bias) sum += *(const Vector##BITS *)(bias + column);                                                 \
            if (onto) sum += *(const Vector##BITS *)(onto + r * outputs + column);                                   \
            *(Vector##BITS *)(y + r * outputs + column) = sum;                                                       \
        }                                                                                                            \
    }

typedef void (*Kernel)(const float *, Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, Py_ssize_t, const float *,
                       Py_ssize_t, const float *, const float *, float *, Py_ssize_t);
#define HALF(MAKE, BITS, P)                                                                                          \
    MAKE(BITS, 1, P) MAKE(BITS, 2, P) MAKE(BITS, 3, P) MAKE(BITS, 4, P) MAKE(BITS, 5, P) MAKE(BITS, 6, P)
#define WHOLE(MAKE, BITS, P)                                                                                         \
    HALF(MAKE, BITS, P)                                                                                              \
    MAKE(BITS, 7, P) MAKE(BITS, 8, P) MAKE(BITS, 9, P) MAKE(BITS, 10, P) MAKE(BITS, 11, P) MAKE(BITS, 12, P)
#define NAME(BITS, R, P) kernel_##BITS##_##R##_##P,
HALF(KERNEL, 256, 2)
WHOLE(KERNEL, 512, 1)
WHOLE(KERNEL, 512, 2)
static const Kernel halves[] = {NULL, HALF(NAME, 256, 2)};
static const Kernel panels512[][TALL_512 + 1] = {{NULL, WHOLE(NAME, 512, 1)}, {NULL, WHOLE(NAME, 512, 2)}};

__attribute__((target("avx2"))) static inline float total(__m256 x)
{
    float lanes[8];
    _mm256_storeu_ps(lanes, x);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

/* Return exp(x) of numbers from -87 to 0, to two units in the last place: 2^n e^r with |r| <= log(2) / 2, by Taylor. */
__attribute__((target("avx2,fma"))) static inline __m256 exponential(__m256 x)
{
    const __m256 quotient = _mm256_mul_ps(x, _mm256_set1_ps(1.44269504f));
    const __m256 n = _mm256_round_ps(quotient, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 rest = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    const __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), rest);
    static const float inverse_factorials[] = {1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1, 1};
    __m256 y = _mm256_set1_ps(1 / 720.0f);
    for (int i = 0; i < 6; i++) y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(inverse_factorials[i]));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}

/* Return x (1 + erf(x / sqrt(2))) / 2. Abramowitz and Stegun 1964, 7.1.26: the error of erf is at most 1.5e-7. */
__attribute__((target("avx2,fma"))) static inline __m256 gelu(__m256 x)
{
    static const float a[] = {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
    const __m256 one = _mm256_set1_ps(1), half = _mm256_set1_ps(0.5f), sign = _mm256_set1_ps(-0.0f);
    const __m256 z = _mm256_mul_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(0.707106781f));
    const __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(z, _mm256_set1_ps(0.3275911f), one));
    __m256 y = _mm256_set1_ps(1.061405429f);
    for (int i = 0; i < 4; i++) y = _mm256_fmadd_ps(y, t, _mm256_set1_ps(a[i]));
    const __m256 power = _mm256_max_ps(_mm256_xor_ps(sign, _mm256_mul_ps(z, z)), _mm256_set1_ps(-87));
    const __m256 erf = _mm256_fnmadd_ps(_mm256_mul_ps(y, t), exponential(power), one);
    return _mm256_mul_ps(_mm256_mul_ps(x, half), _mm256_add_ps(one, _mm256_or_ps(erf, _mm256_and_ps(sign, x))));
}

__attribute__((target("avx2,fma"))) static void apply_gelu(float *y, Py_ssize_t rows, Py_ssize_t outputs)
{
    for (Py_ssize_t row = 0; row < rows; row++, y += outputs) {
        _mm256_storeu_ps(y, gelu(_mm256_loadu_ps(y)));
        _mm256_storeu_ps(y + 8, gelu(_mm256_loadu_ps(y + 8)));
    }
}

/* Set the first half of a row to its GELU times the second half. */
__attribute__((target("avx2,fma"))) static void gate(float *y, Py_ssize_t width)
{
    for (Py_ssize_t i = 0; i < width / 2; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(gelu(_mm256_loadu_ps(y + i)), _mm256_loadu_ps(y + width / 2 + i)));
}

/* Return 1 / sqrt(variance + epsilon); where a variance overflows, its root would be taken for infinity, a row for 0. */
static inline float inverse_deviation(float variance, float epsilon)
{
    return variance <= FLT_MAX ? 1 / sqrtf(variance + epsilon) : NAN;
}

/* Normalize a row to mean 0 and variance 1, scale and shift it; `width` is a multiple of 8. */
__attribute__((target("avx2,fma"))) static void normalize(float *normed, const float *y, Py_ssize_t width,
                                                          const float *scale, const float *shift, float epsilon)
{
    __m256 sums = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += 8) sums = _mm256_add_ps(sums, _mm256_loadu_ps(y + i));
    const __m256 mean = _mm256_set1_ps(total(sums) / width);
    for (Py_ssize_t i = 0; i < width; i += 8) {
        const __m256 centered = _mm256_sub_ps(_mm256_loadu_ps(y + i), mean);
        squares = _mm256_fmadd_ps(centered, centered, squares);
    }
    const __m256 factor = _mm256_set1_ps(inverse_deviation(total(squares) / width, epsilon));
    for (Py_ssize_t i = 0; i < width; i += 8) {
        const __m256 unit = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(y + i), mean), factor);
        const __m256 added = shift ? _mm256_loadu_ps(shift + i) : _mm256_setzero_ps();
        _mm256_storeu_ps(normed + i, _mm256_fmadd_ps(unit, _mm256_loadu_ps(scale + i), added));
    }
}

/* Return how many of these blocks fetch what follows, each its share: every such step, lines of 64 bytes. */
static Py_ssize_t fetching_blocks(Py_ssize_t blocks) { return blocks >= 8 ? 8 : blocks >= 4 ? 4 : blocks >= 2 ? 2 : 1; }

/* Return the most rows of a kernel with registers of `bits`. */
static Py_ssize_t tallest(int bits) { return bits == 256 ? TALL : TALL_512; }

/* Compute rows [top, top + count) of the output's columns from `column` on: one panel, with 512 bits one or two. */
static void multiply_panels(const Product *p, int bits, Py_ssize_t top, Py_ssize_t count, Py_ssize_t column, int panels)
{
    const Kernel *const kernels = bits == 512 ? panels512[panels - 1] : halves;
    const Py_ssize_t blocks = (count + tallest(bits) - 1) / tallest(bits);
    const Py_ssize_t apart = bits == 512 ? p->apart : WIDE / 2;
    const Py_ssize_t fetching = fetching_blocks(blocks);
    for (Py_ssize_t from = 0; from < p->width; from += DEPTH) {
        const Py_ssize_t depth = p->width - from < DEPTH ? p->width - from : DEPTH;
        const float *panel = (const float *)p->panels + column / WIDE * p->apart + from * WIDE;
        const float *next = panel + (from + depth < p->width ? depth * WIDE : panels * p->apart - from * WIDE);
        for (Py_ssize_t block = 0; block < blocks; block++) {
            const Py_ssize_t row = top + count * block / blocks, stop = top + count * (block + 1) / blocks;
            float *y = (float *)p->y + row * p->outputs + column;
            const float *onto = from ? y : p->onto ? (const float *)p->onto + row * p->outputs + column : NULL;
            const float *bias = from || !p->bias ? NULL : (const float *)p->bias + column;
            const float *x = (const float *)p->x + row * p->stride + from * p->step;
            kernels[stop - row](x, p->stride, p->step, panel, apart, depth, next,
                                block < fetching ? fetching - 1 : PY_SSIZE_T_MAX, bias, onto, y, p->outputs);
            next += block < fetching ? depth / fetching * WIDE : 0;
        }
    }
    for (int part = 0; part < panels && p->gelu == 1; part++)
        apply_gelu((float *)p->y + top * p->outputs + column + part * WIDE, count, p->outputs);
}

/* Compute what `finish` does. */
static void finish_row(const Product *p, Py_ssize_t row)
{
    float *const y = (float *)p->y + row * p->outputs, *const normed = (float *)p->normed + row * p->outputs;
    if (p->gelu == GATED) gate(y, p->outputs);
    if (p->scale) normalize(normed, y, p->outputs, p->scale, p->shift, p->epsilon);
}
