/* Products of matrices for panels.py, which describes the layout of its arguments. Callers check all arguments.

   A product of few rows is bound by reading the weights, so panels are read in the order in which they are stored, the
   next one is fetched while one is used, and one panel of at most DEPTH columns of x stays in the first-level cache for
   all rows. With registers of 512 bits two panels are used at a time, as otherwise the loads of x would take as long as
   the sums. Sums of DEPTH products are added up at the end, which rounds less than one long sum. A row is computed in
   the same way whatever the other rows are. Goto and van de Geijn 2008 describe the principle.

   In bf16 a panel holds pairs of columns, whose products VDPBF16PS adds to a sum in float32. With AMX, 16 such pairs of a
   panel are a tile, which TDPBF16PS multiplies with 16 rows of x. A sum is rounded once, after bias, addition and GELU.

   Attention copies the keys and values of a head and a sequence into panels, so that scores and outputs are products
   like the others. The rows that the thread reads next are fetched meanwhile, as they lie far apart. Its backward pass
   computes the probabilities again, and the same numbers at random, as FlashAttention does (Dao 2023, algorithm 2), so
   that nothing of the size of the scores is stored.

   OpenMP's functions are those of the library that torch has loaded, so that there are no threads but torch's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_shared.h"

#define WIDE 16        /* columns of the output per panel: two registers of 256 bits, or one of 512 */
#define TALL 6         /* rows at a time: 12 of 16 registers hold sums */
#define TALL_512 12    /* with registers of 512 bits: 24 of 32 hold sums */
#define DEPTH 384      /* products per sum */
#define CHUNK 36864    /* numbers of x that stay in the second-level cache */
#define TALL_TILES 32  /* rows of two tiles: four of eight tiles hold sums */
#define DEEP 32        /* columns of a tile of x */
#define CHUNK_TILES 262144 /* numbers of panels that stay there with tiles */
#define QUERIES 36     /* rows of an attention's scores at a time */
#define LEAST 524288.0 /* multiplications from which on several threads are used */
#define BF16 16        /* in place of the bits of registers: numbers are bf16, registers have 512 bits */
#define TILES 8        /* the same with tiles */

typedef uint16_t Bf16; /* the upper half of a float */

/* What the gradients of a row of `count` scores need besides: of those in [from, to) the highest, 1 / the sum of powers, and
   the product of the outputs and their gradients. */
typedef struct {
    float scale, highest, inverse, together;
    Py_ssize_t from, to, count;
    int upper; /* in the upper halves of pairs, or in the lower ones */
} RowBack;

/* y = x weight^T + bias + onto, then GELU, and in `normed`, which may be y, LayerNorm of that with `scale` and `shift`;
   what is NULL or 0 is left out. Numbers are float or Bf16. */
typedef struct {
    const void *x, *panels, *bias, *onto;
    void *y, *normed;
    Py_ssize_t rows, stride, width, outputs; /* a row of x begins `stride` numbers after the last one */
    int gelu;                                /* GATED: the first half of a row becomes its GELU times the second half */
    const void *scale, *shift;
    float epsilon;
    Py_ssize_t apart, step; /* from one panel to the next, and in x from one column, or pair of columns, to the next */
} Product;
#define NUM_FIELDS 14
#define GATED 2
#define MOST 3 /* products per call */

/* y = softmax(query key^T / sqrt(size)) value, for each head and sequence; sequences lie one after the other. A token
   attends to at most `before` tokens before it and `after` after it, numbers of at most `rows`. Pairs of components are
   rotated by their positions if `cosine` and `sine` are given, (positions, size / 2). Of 2^32 probabilities, `dropped`
   are set to 0, and the others scaled up; `seed` determines which. */
typedef struct {
    const void *qkv;        /* (rows, 3 * heads * size) */
    void *y;                /* (rows, heads * size) */
    const int32_t *offsets; /* (sequences + 1) */
    Py_ssize_t sequences, rows, positions, heads, size;
    const float *cosine, *sine;
    int adjacent; /* whether the components of a pair are, or one in each half */
    Py_ssize_t before, after;
    float *sums; /* (rows, heads, 2): the highest score s, and the sum of e^(score - s); NULL: they are not wanted */
    Py_ssize_t dropped, seed;
} Attention;
#define ATTENTION_FIELDS 16
enum { QUERY, KEY, VALUE }; /* the parts of a row of qkv */

/* The gradient of qkv, (rows, 3 * heads * size), given `grad`, that of y. */
typedef struct {
    Attention of; /* with what has been computed */
    const void *grad;
    void *grad_qkv;
} Gradient;

/* A layer of an encoder without gradient: y = down(up(z)) + z, where z = out(attention(qkv(x))) + x, and each product may
   have a norm. `begin` has the norm of x that qkv reads; with `pre_norm` that of `out` is of the input of `up` alone. */
typedef struct {
    Attention attention;
    const void *x;
    void *y;                 /* may be x, if all rows are selected */
    const int64_t *selected; /* (count): the rows of which y consists; NULL: all */
    Py_ssize_t count;
    int pre_norm;
    Product begin, qkv, out, up, down; /* without rows and matrices of numbers */
} Layer;
#define PRODUCT_FIELDS 7 /* panels, bias, width, outputs, gelu, scale, shift */
#define LAYER_FIELDS (ATTENTION_FIELDS + 1 + 2 + 4 * PRODUCT_FIELDS)
#define LAYER_NORMS 3 /* begin, out, down */
#define MOST_LAYERS 64 /* of a call */

/* Orders in which a matrix of bf16 is written: in panels as the rows of a weight or as its columns, or transposed; of
   columns, 0 follows up to a multiple of DEEP. */
enum { ROWS, COLUMNS, DOWN };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

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

#if defined(__clang__) || __GNUC__ >= 10
#define TARGET_BF16 "avx512f,avx512bf16"
#define HAS_BF16 __builtin_cpu_supports("avx512bf16")

/* Set R rows of y to the sums of `width` products with P panels, `apart` numbers from each other, plus `onto`. */
#define KERNEL_BF16(BITS, R, P)                                                                                      \
    __attribute__((target(TARGET_BF16))) static void kernel_##BITS##_##R##_##P(                                      \
        const Bf16 *x, Py_ssize_t stride, Py_ssize_t step, const Bf16 *panel, Py_ssize_t apart, Py_ssize_t width,    \
        const Bf16 *next, Py_ssize_t skip, const float *onto, float *y, Py_ssize_t outputs)                          \
    {                                                                                                                \
        __m512 sums[R][P];                                                                                           \
        EACH(R) EACH_PART(P) sums[r][part] = _mm512_setzero_ps();                                                    \
        for (Py_ssize_t i = 0; i < width / 2; i++, panel += 2 * WIDE, x += step) {                                   \
            __m512bh weights[P];                                                                                     \
            EACH_PART(P) weights[part] = (__m512bh)_mm512_loadu_si512(panel + part * apart);                         \
            if (!(i & skip)) {                                                                                       \
                for (int part = 0; part < P; part++) __builtin_prefetch(next + part * apart);                        \
                next += 2 * WIDE;                                                                                    \
            }                                                                                                        \
            EACH(R) {                                                                                                \
                int pair;                                                                                            \
                memcpy(&pair, x + r * stride, sizeof pair);                                                          \
                const __m512bh values = (__m512bh)_mm512_set1_epi32(pair);                                           \
                EACH_PART(P) sums[r][part] = _mm512_dpbf16_ps(sums[r][part], weights[part], values);                 \
            }                                                                                                        \
        }                                                                                                            \
        EACH(R) EACH_PART(P) {                                                                                       \
            const Py_ssize_t at = r * outputs + part * WIDE;                                                         \
            const __m512 more = onto ? _mm512_loadu_ps(onto + at) : _mm512_setzero_ps();                             \
            _mm512_storeu_ps(y + at, _mm512_add_ps(sums[r][part], more));                                            \
        }                                                                                                            \
    }

typedef void (*KernelBf16)(const Bf16 *, Py_ssize_t, Py_ssize_t, const Bf16 *, Py_ssize_t, Py_ssize_t, const Bf16 *,
                           Py_ssize_t, const float *, float *, Py_ssize_t);
WHOLE(KERNEL_BF16, BF16, 1)
WHOLE(KERNEL_BF16, BF16, 2)
static const KernelBf16 panels_bf16[][TALL_512 + 1] = {{NULL, WHOLE(NAME, BF16, 1)}, {NULL, WHOLE(NAME, BF16, 2)}};

__attribute__((target(TARGET_BF16))) static inline __m512 widened(const Bf16 *x)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16));
}

__attribute__((target(TARGET_BF16))) static void widen(float *wide, const Bf16 *x, Py_ssize_t width)
{
    for (Py_ssize_t i = 0; i < width; i += WIDE) _mm512_storeu_ps(wide + i, widened(x + i));
}

__attribute__((target(TARGET_BF16))) static inline void store_narrow(Bf16 *x, __m512 wide)
{
    _mm256_storeu_si256((__m256i *)x, (__m256i)_mm512_cvtneps_pbh(wide));
}

__attribute__((target(TARGET_BF16))) static void narrow(Bf16 *x, const float *wide, Py_ssize_t width)
{
    for (Py_ssize_t i = 0; i < width; i += WIDE) store_narrow(x + i, _mm512_loadu_ps(wide + i));
}

/* Return what `gelu` does to a relative error of 2^-12, an eighth of what bf16 rounds: by an approximate quotient and fewer
   terms of 2^r = e^(r log 2). */
__attribute__((target(TARGET_BF16))) static inline __m512 gelu_bf16(__m512 x)
{
    static const float a[] = {0.5307027145f, -0.7265760135f, 0.7107068705f, -0.142248368f, 0.127414796f};
    static const float b[] = {0.0096181291f, 0.0555041087f, 0.2402265070f, 0.6931471806f, 1};
    const __m512 size = _mm512_min_ps(_mm512_set1_ps(30), _mm512_abs_ps(x)); /* what is not a number remains */
    const __m512 t = _mm512_rcp14_ps(_mm512_fmadd_ps(size, _mm512_set1_ps(0.2316418882f), _mm512_set1_ps(1)));
    const __m512 power = _mm512_mul_ps(_mm512_mul_ps(size, size), _mm512_set1_ps(-0.7213475204f));
    const __m512 n = _mm512_roundscale_ps(power, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(power, n);
    __m512 y = _mm512_set1_ps(a[0]), e = _mm512_set1_ps(b[0]);
    for (int i = 1; i < 5; i++) y = _mm512_fmadd_ps(y, t, _mm512_set1_ps(a[i]));
    for (int i = 1; i < 5; i++) e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(b[i]));
    const __m512 rest = _mm512_mul_ps(_mm512_mul_ps(y, t), _mm512_scalef_ps(e, n)); /* half of 1 - erf */
    return _mm512_fnmadd_ps(size, rest, _mm512_max_ps(x, _mm512_setzero_ps()));
}

/* Transpose 16 rows of 16 pairs. */
__attribute__((target(TARGET_BF16))) static inline void transpose_pairs(__m512i rows[WIDE])
{
    __m512i other[WIDE];
    for (int i = 0; i < WIDE; i += 2) {
        other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < WIDE; i += 4)
        for (int j = 0; j < 2; j++) {
            rows[i + 2 * j] = _mm512_unpacklo_epi64(other[i + j], other[i + j + 2]);
            rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(other[i + j], other[i + j + 2]);
        }
    /* row 4 i + j has, in its part k of 128 bits, column 4 k + j of rows 4 i to 4 i + 3 */
    for (int j = 0; j < 4; j++) {
        const __m512i even = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0x88);
        const __m512i odd = _mm512_shuffle_i32x4(rows[j], rows[4 + j], 0xdd);
        const __m512i next_even = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0x88);
        const __m512i next_odd = _mm512_shuffle_i32x4(rows[8 + j], rows[12 + j], 0xdd);
        other[j] = _mm512_shuffle_i32x4(even, next_even, 0x88);
        other[4 + j] = _mm512_shuffle_i32x4(odd, next_odd, 0x88);
        other[8 + j] = _mm512_shuffle_i32x4(even, next_even, 0xdd);
        other[12 + j] = _mm512_shuffle_i32x4(odd, next_odd, 0xdd);
    }
    memcpy(rows, other, sizeof other);
}

/* Return 16 columns of rows i and i + 1 in pairs; rows from `count` on are 0. */
__attribute__((target(TARGET_BF16))) static inline __m512i pairs_down(const Bf16 *x, Py_ssize_t i, Py_ssize_t count,
                                                                      Py_ssize_t stride)
{
    __m512i pairs = _mm512_setzero_si512();
    if (i < count) pairs = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + i * stride)));
    if (i + 1 >= count) return pairs;
    const __m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + (i + 1) * stride)));
    return _mm512_or_si512(pairs, _mm512_slli_epi32(upper, 16));
}

/* Write 16 rows, which begin `stride` numbers after each other, to a panel. */
__attribute__((target(TARGET_BF16))) static void write_panel(Bf16 *panel, const Bf16 *rows, Py_ssize_t stride,
                                                             Py_ssize_t columns)
{
    for (Py_ssize_t column = 0; column < columns; column += DEEP, panel += DEEP * WIDE) {
        const int count = (int)(columns - column < DEEP ? (columns - column) / 2 : WIDE);
        const __mmask16 mask = (__mmask16)((1u << count) - 1);
        __m512i block[WIDE];
        for (int i = 0; i < WIDE; i++) block[i] = _mm512_maskz_loadu_epi32(mask, rows + i * stride + column);
        transpose_pairs(block);
        for (int i = 0; i < count; i++) _mm512_storeu_si512(panel + i * DEEP, block[i]);
    }
}

/* Write 16 columns of 32 rows, of which there are `count` and 0 follows, as columns of a weight, or as rows that begin `to`
   numbers after each other. */
__attribute__((target(TARGET_BF16))) static void write_block(Bf16 *y, Py_ssize_t to, const Bf16 *x, Py_ssize_t count,
                                                             Py_ssize_t stride, int order)
{
    __m512i block[WIDE];
    for (int i = 0; i < WIDE; i++) block[i] = pairs_down(x, 2 * i, count, stride);
    if (order == DOWN) transpose_pairs(block);
    for (int i = 0; i < WIDE; i++) _mm512_storeu_si512(y + i * to, block[i]);
}

/* Write a matrix in one of the orders of `pack`. */
__attribute__((target(TARGET_BF16))) static void pack(const Bf16 *x, Py_ssize_t rows, Py_ssize_t columns, Bf16 *y,
                                                      int order, int threads)
{
    const Py_ssize_t deep = (rows + DEEP - 1) / DEEP * DEEP, parts = (order == ROWS ? rows : columns) / WIDE;
    const int several = threads > 1 && rows * columns >= LEAST / DEPTH * 16;
#pragma omp parallel for schedule(static) num_threads(threads) if (several)
    for (Py_ssize_t part = 0; part < parts; part++) {
        if (order == ROWS) {
            write_panel(y + part * WIDE * columns, x + part * WIDE * columns, columns, columns);
            continue;
        }
        for (Py_ssize_t row = 0; row < deep; row += DEEP)
            write_block(y + part * WIDE * deep + (order == DOWN ? row : row * WIDE), order == DOWN ? deep : DEEP,
                        x + row * columns + part * WIDE, rows - row, columns, order);
    }
}

/* Set rows of y, from row `top` and `column` on, to a tile with what is added to it, and GELU. */
__attribute__((target(TARGET_BF16))) static void finish_bf16(const Product *p, const float *tile, Py_ssize_t top,
                                                             Py_ssize_t count, Py_ssize_t column, int panels)
{
    for (Py_ssize_t row = top; row < top + count; row++)
        for (Py_ssize_t from = column; from < column + panels * WIDE; from += WIDE, tile += WIDE) {
            __m512 sum = _mm512_loadu_ps(tile);
            if (p->bias) sum = _mm512_add_ps(sum, widened((const Bf16 *)p->bias + from));
            if (p->onto) sum = _mm512_add_ps(sum, widened((const Bf16 *)p->onto + row * p->outputs + from));
            if (p->gelu == 1) sum = gelu_bf16(sum);
            store_narrow((Bf16 *)p->y + row * p->outputs + from, sum);
        }
}

#if defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TARGET_TILES "avx512f,avx512bf16,amx-tile,amx-bf16"
#define BARRIER __asm__ volatile("" ::: "memory") /* the intrinsics do not tell compilers all that they read */

/* Return whether there are tiles: the kernel wants to be asked first, and refuses where there are none. */
static int has_tiles(void)
{
    enum { ASK = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    if (!HAS_BF16 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return d & AMX_BF16 && d & AMX_TILE && !syscall(SYS_arch_prctl, ASK, TILE_DATA);
}

static _Thread_local Py_ssize_t shaped; /* the rows that this thread's tiles are for; 0: they have been released */

/* Set the shapes of tiles for at most TALL_TILES rows of x: those of 0 and 1 are the sums of the first 16 with two panels,
   of 2 and 3 those of the others; 4 and 5 are x, 6 and 7 the panels. */
__attribute__((target(TARGET_TILES))) static void shape_tiles(Py_ssize_t rows)
{
    if (rows == shaped) return;
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        const Py_ssize_t upper = rows < WIDE ? rows : WIDE, lower = rows > WIDE ? rows - WIDE : WIDE;
        shapes.bytes[tile] = 64;
        shapes.rows[tile] = tile >= 6 ? WIDE : tile == 2 || tile == 3 || tile == 5 ? lower : upper;
    }
    BARRIER;
    _tile_loadconfig(&shapes);
    shaped = rows;
}

__attribute__((target(TARGET_TILES))) static void release_tiles(void)
{
    _tile_release();
    shaped = 0;
}

/* Set at most TALL_TILES rows of y, for which tiles have been shaped, to the sums of `width` products with one or two
   panels, whose lines are `line` numbers from each other, plus `onto`. */
__attribute__((target(TARGET_TILES), always_inline)) static inline void multiply_tiles(
    const Bf16 *x, Py_ssize_t stride, Py_ssize_t rows, const Bf16 *panel, Py_ssize_t apart, Py_ssize_t line,
    Py_ssize_t width, const float *onto, float *y, Py_ssize_t outputs, const int two, const int tall)
{
    _Alignas(64) Bf16 last_x[TALL_TILES][DEEP], last_panels[2][DEEP * WIDE];
    const Py_ssize_t to = outputs * sizeof *y;
    Py_ssize_t row = stride * sizeof *x, from = line * sizeof *panel;
    BARRIER;
    if (onto) {
        _tile_loadd(0, onto, to);
        if (two) _tile_loadd(1, onto + WIDE, to);
        if (tall) _tile_loadd(2, onto + WIDE * outputs, to);
        if (two && tall) _tile_loadd(3, onto + WIDE * outputs + WIDE, to);
    } else {
        _tile_zero(0);
        if (two) _tile_zero(1);
        if (tall) _tile_zero(2);
        if (two && tall) _tile_zero(3);
    }
    for (Py_ssize_t i = 0; i < width; i += DEEP, x += DEEP, panel += WIDE * line) {
        if (i + DEEP > width) { /* filled up with 0 */
            const Py_ssize_t rest = width - i;
            memset(last_x, 0, sizeof last_x);
            memset(last_panels, 0, sizeof last_panels);
            for (Py_ssize_t j = 0; j < rows; j++) memcpy(last_x[j], x + j * stride, rest * sizeof *x);
            for (int part = 0; part < 1 + two; part++)
                for (Py_ssize_t j = 0; j < rest / 2; j++)
                    memcpy(last_panels[part] + j * DEEP, panel + part * apart + j * line, DEEP * sizeof *panel);
            x = last_x[0], row = sizeof last_x[0], panel = last_panels[0], apart = DEEP * WIDE, from = 64;
            BARRIER;
        }
        _tile_loadd(6, panel, from);
        _tile_loadd(4, x, row);
        _tile_dpbf16ps(0, 4, 6);
        if (two) {
            _tile_loadd(7, panel + apart, from);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (tall) {
            _tile_loadd(5, (const char *)x + WIDE * row, row);
            _tile_dpbf16ps(2, 5, 6);
            if (two) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, y, to);
    if (two) _tile_stored(1, y + WIDE, to);
    if (tall) _tile_stored(2, y + WIDE * outputs, to);
    if (two && tall) _tile_stored(3, y + WIDE * outputs + WIDE, to);
    BARRIER;
}

/* Compute what `multiply_tiles` does, with code for each number of tiles. */
__attribute__((target(TARGET_TILES))) static void multiply_block(const Bf16 *x, Py_ssize_t stride, Py_ssize_t rows,
                                                                 const Bf16 *panel, Py_ssize_t apart, Py_ssize_t line,
                                                                 Py_ssize_t width, const float *onto, float *y,
                                                                 Py_ssize_t outputs, int panels)
{
    if (panels == 2 && rows > WIDE)
        multiply_tiles(x, stride, rows, panel, apart, line, width, onto, y, outputs, 1, 1);
    else if (panels == 2) multiply_tiles(x, stride, rows, panel, apart, line, width, onto, y, outputs, 1, 0);
    else if (rows > WIDE) multiply_tiles(x, stride, rows, panel, apart, line, width, onto, y, outputs, 0, 1);
    else multiply_tiles(x, stride, rows, panel, apart, line, width, onto, y, outputs, 0, 0);
}
#else
static int has_tiles(void) { return 0; }
static void shape_tiles(Py_ssize_t rows) { (void)rows; }
static void release_tiles(void) {}
static void multiply_block(const Bf16 *x, Py_ssize_t stride, Py_ssize_t rows, const Bf16 *panel, Py_ssize_t apart,
                           Py_ssize_t line, Py_ssize_t width, const float *onto, float *y, Py_ssize_t outputs,
                           int panels)
{
    (void)x, (void)stride, (void)rows, (void)panel, (void)apart, (void)line, (void)width;
    (void)onto, (void)y, (void)outputs, (void)panels;
}
#endif

/* Compute what `multiply_panels` does with tiles, for panels [first, last). Rows of x stay in the first-level cache, as
   panels, whose lines follow each other, come fast enough from the next one, where as many stay as fit. */
static void multiply_panels_tiles(const Product *p, Py_ssize_t top, Py_ssize_t count, Py_ssize_t first, Py_ssize_t last)
{
    const Py_ssize_t fit = CHUNK_TILES / (p->width * 2 * WIDE) * 2, group = fit < 2 ? 2 : fit;
    _Alignas(64) float tile[TALL_TILES * 2 * WIDE];
    for (Py_ssize_t begin = first; begin < last; begin += group)
        for (Py_ssize_t from = top; from < top + count; from += TALL_TILES) {
            const Py_ssize_t rows = top + count - from < TALL_TILES ? top + count - from : TALL_TILES;
            const Py_ssize_t end = begin + group < last ? begin + group : last;
            shape_tiles(rows);
            for (Py_ssize_t panel = begin; panel < end; panel += 2) {
                const int panels = panel + 1 < end ? 2 : 1;
                multiply_block((const Bf16 *)p->x + from * p->stride, p->stride, rows,
                               (const Bf16 *)p->panels + panel * p->apart, p->apart, DEEP, p->width, NULL, tile,
                               panels * WIDE, panels);
                finish_bf16(p, tile, from, rows, panel * WIDE, panels);
            }
        }
}

/* Compute what `multiply_panels` does. */
static void multiply_panels_bf16(const Product *p, Py_ssize_t top, Py_ssize_t count, Py_ssize_t column, int panels)
{
    const Py_ssize_t blocks = (count + TALL_512 - 1) / TALL_512, fetching = fetching_blocks(blocks);
    const Bf16 *panel = (const Bf16 *)p->panels + column / WIDE * p->apart, *next = panel + panels * p->apart;
    float tile[TALL_512 * 2 * WIDE];
    for (Py_ssize_t block = 0; block < blocks; block++) {
        const Py_ssize_t row = top + count * block / blocks, stop = top + count * (block + 1) / blocks;
        panels_bf16[panels - 1][stop - row]((const Bf16 *)p->x + row * p->stride, p->stride, 2, panel, p->apart,
                                            p->width, next, block < fetching ? fetching - 1 : PY_SSIZE_T_MAX, NULL,
                                            tile, panels * WIDE);
        next += block < fetching ? p->apart / fetching : 0;
        finish_bf16(p, tile, row, stop - row, column, panels);
    }
}

/* Compute a product of bf16 in this thread, with y and `onto` in float, and neither bias, GELU nor norm. */
static void multiply_all_bf16(const Product *p, int bits)
{
    for (Py_ssize_t row = 0; bits == TILES && p->step == 2 && row < p->rows; row += TALL_TILES) {
        const Py_ssize_t rows = p->rows - row < TALL_TILES ? p->rows - row : TALL_TILES;
        shape_tiles(rows);
        for (Py_ssize_t column = 0; column < p->outputs; column += 2 * WIDE) {
            const Py_ssize_t at = row * p->outputs + column;
            multiply_block((const Bf16 *)p->x + row * p->stride, p->stride, rows,
                           (const Bf16 *)p->panels + column / WIDE * p->apart, p->apart, DEEP, p->width,
                           p->onto ? (const float *)p->onto + at : NULL, (float *)p->y + at, p->outputs,
                           column + WIDE < p->outputs ? 2 : 1);
        }
    }
    if (bits == TILES && p->step == 2) return;
    const Py_ssize_t blocks = (p->rows + TALL_512 - 1) / TALL_512;
    for (Py_ssize_t column = 0; column < p->outputs; column += 2 * WIDE) {
        const int panels = column + WIDE < p->outputs ? 2 : 1;
        const Bf16 *const panel = (const Bf16 *)p->panels + column / WIDE * p->apart;
        for (Py_ssize_t block = 0; block < blocks; block++) {
            const Py_ssize_t row = p->rows * block / blocks, stop = p->rows * (block + 1) / blocks;
            const Py_ssize_t at = row * p->outputs + column;
            panels_bf16[panels - 1][stop - row]((const Bf16 *)p->x + row * p->stride, p->stride, p->step, panel,
                                                p->apart, p->width, panel, PY_SSIZE_T_MAX,
                                                p->onto ? (const float *)p->onto + at : NULL, (float *)p->y + at,
                                                p->outputs);
        }
    }
}

/* Add to y, whose rows are `apart` numbers from each other, the product of DEEP rows of x, transposed, and as many of
   `pairs`, `count` wide. */
static void add_down(const Bf16 *x, Py_ssize_t size, const Bf16 *pairs, Py_ssize_t count, float *y, Py_ssize_t apart)
{
    for (Py_ssize_t row = 0; row < size; row += TALL_TILES) {
        const Py_ssize_t rows = size - row < TALL_TILES ? size - row : TALL_TILES;
        shape_tiles(rows);
        for (Py_ssize_t column = 0; column < count; column += 2 * WIDE) {
            float *const to = y + row * apart + column;
            multiply_block(x + row * DEEP, DEEP, rows, pairs + 2 * column, DEEP, 2 * count, DEEP, to, to, apart,
                           column + WIDE < count ? 2 : 1);
        }
    }
}

/* Write a matrix of float transposed, both of whose dimensions are multiples of 16. */
__attribute__((target(TARGET_BF16))) static void write_transposed(float *y, const float *x, Py_ssize_t rows,
                                                                  Py_ssize_t columns)
{
    for (Py_ssize_t row = 0; row < rows; row += WIDE)
        for (Py_ssize_t column = 0; column < columns; column += WIDE) {
            __m512i block[WIDE];
            for (int i = 0; i < WIDE; i++) block[i] = _mm512_loadu_si512(x + (row + i) * columns + column);
            transpose_pairs(block);
            for (int i = 0; i < WIDE; i++) _mm512_storeu_si512(y + (column + i) * rows + row, block[i]);
        }
}

/* Place numbers in the lower halves of as many pairs, or in the upper halves, without a change of the lower ones. */
__attribute__((target(TARGET_BF16))) static inline void place_halves(uint32_t *pairs, const Bf16 *x, Py_ssize_t count,
                                                                     int upper)
{
    for (Py_ssize_t i = 0; i < count; i += WIDE) {
        __m512i halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(x + i)));
        if (upper) halves = _mm512_or_si512(_mm512_slli_epi32(halves, 16), _mm512_loadu_si512(pairs + i));
        _mm512_storeu_si512(pairs + i, halves);
    }
}

/* Return 2^x, to 2^-18 of it. */
__attribute__((target(TARGET_BF16))) static inline __m512 power_of_2(__m512 x)
{
    static const float b[] = {0.0013333558f, 0.0096181291f, 0.0555041087f, 0.2402265070f, 0.6931471806f, 1};
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 y = _mm512_set1_ps(b[0]);
    for (int i = 1; i < 6; i++) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(b[i]));
    return _mm512_scalef_ps(y, n);
}

/* Return which of 16 places from i on are in [from, to). */
__attribute__((target(TARGET_BF16))) static inline __mmask16 places_in(Py_ssize_t i, Py_ssize_t from, Py_ssize_t to)
{
    const uint32_t before = from > i ? from - i < WIDE ? (1u << (from - i)) - 1 : 0xffff : 0;
    const uint32_t until = to > i ? to - i < WIDE ? (1u << (to - i)) - 1 : 0xffff : 0;
    return (__mmask16)(until & ~before);
}

/* Compute what `exponentials` does. */
__attribute__((target(TARGET_BF16))) static float exponentials_bf16(float *scores, Py_ssize_t from, Py_ssize_t to,
                                                                    Py_ssize_t filled, float scale, float *highest)
{
    __m512 most = _mm512_set1_ps(-INFINITY), sums = _mm512_setzero_ps();
    for (Py_ssize_t i = from / WIDE * WIDE; i < to; i += WIDE)
        most = _mm512_mask_max_ps(most, places_in(i, from, to), _mm512_loadu_ps(scores + i), most);
    *highest = _mm512_reduce_max_ps(most);
    for (Py_ssize_t i = 0; i < filled; i += WIDE) {
        const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(scores + i), _mm512_set1_ps(*highest));
        const __m512 power = power_of_2(_mm512_mul_ps(x, _mm512_set1_ps(scale * 1.44269504f)));
        const __m512 kept = _mm512_maskz_mov_ps(places_in(i, from, to), power);
        sums = _mm512_add_ps(sums, kept);
        _mm512_storeu_ps(scores + i, kept);
    }
    return _mm512_reduce_add_ps(sums);
}

/* Set a row's scores to their gradients, given those of probabilities, as a row of bf16 and, like the probabilities after
   dropout, as row i of pairs. */
__attribute__((target(TARGET_BF16))) static void scores_back_bf16(float *scores, const float *of_p, const float *factors,
                                                                  const RowBack *r, uint32_t *down, uint32_t *scores_down)
{
    const __m512 scale = _mm512_set1_ps(r->scale * 1.44269504f), highest = _mm512_set1_ps(r->highest);
    const __m512 inverse = _mm512_set1_ps(r->inverse), together = _mm512_set1_ps(r->together);
    for (Py_ssize_t j = 0; j < r->count; j += WIDE) {
        const __m512 x = _mm512_sub_ps(_mm512_loadu_ps(scores + j), highest);
        const __m512 power = _mm512_mul_ps(power_of_2(_mm512_mul_ps(x, scale)), inverse);
        const __m512 p = _mm512_maskz_mov_ps(places_in(j, r->from, r->to), power);
        const __m512 factor = factors ? _mm512_loadu_ps(factors + j) : _mm512_set1_ps(1);
        const __m512 grad = _mm512_fmsub_ps(_mm512_loadu_ps(of_p + j), factor, together);
        store_narrow((Bf16 *)scores + j, _mm512_mul_ps(p, grad));
        place_halves(scores_down + j, (Bf16 *)scores + j, WIDE, r->upper);
        Bf16 kept[WIDE];
        store_narrow(kept, _mm512_mul_ps(p, factor));
        place_halves(down + j, kept, WIDE, r->upper);
    }
}

/* Compute what `finish_row` does. */
__attribute__((target(TARGET_BF16))) static void finish_row_bf16(const Product *p, Py_ssize_t row)
{
    const Py_ssize_t width = p->outputs;
    Bf16 *const y = (Bf16 *)p->y + row * width, *const normed = (Bf16 *)p->normed + row * width;
    for (Py_ssize_t i = 0; p->gelu == GATED && i < width / 2; i += WIDE)
        store_narrow(y + i, _mm512_mul_ps(gelu_bf16(widened(y + i)), widened(y + width / 2 + i)));
    if (!p->scale) return;
    __m512 sums = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += WIDE) sums = _mm512_add_ps(sums, widened(y + i));
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sums) / width);
    for (Py_ssize_t i = 0; i < width; i += WIDE) {
        const __m512 centered = _mm512_sub_ps(widened(y + i), mean);
        squares = _mm512_fmadd_ps(centered, centered, squares);
    }
    const __m512 factor = _mm512_set1_ps(inverse_deviation(_mm512_reduce_add_ps(squares) / width, p->epsilon));
    for (Py_ssize_t i = 0; i < width; i += WIDE) {
        const __m512 unit = _mm512_mul_ps(_mm512_sub_ps(widened(y + i), mean), factor);
        const __m512 shift = p->shift ? widened((const Bf16 *)p->shift + i) : _mm512_setzero_ps();
        store_narrow(normed + i, _mm512_fmadd_ps(unit, widened((const Bf16 *)p->scale + i), shift));
    }
}
#else
#define HAS_BF16 0
static void multiply_panels_bf16(const Product *p, Py_ssize_t top, Py_ssize_t count, Py_ssize_t column, int panels)
{
    (void)p, (void)top, (void)count, (void)column, (void)panels;
}
static void multiply_panels_tiles(const Product *p, Py_ssize_t top, Py_ssize_t count, Py_ssize_t first, Py_ssize_t last)
{
    (void)p, (void)top, (void)count, (void)first, (void)last;
}
static void multiply_all_bf16(const Product *p, int bits) { (void)p, (void)bits; }
static int has_tiles(void) { return 0; }
static void release_tiles(void) {}
static void place_halves(uint32_t *pairs, const Bf16 *x, Py_ssize_t count, int upper)
{
    (void)pairs, (void)x, (void)count, (void)upper;
}
static void finish_row_bf16(const Product *p, Py_ssize_t row) { (void)p, (void)row; }
static void widen(float *wide, const Bf16 *x, Py_ssize_t width) { (void)wide, (void)x, (void)width; }
static void write_panel(Bf16 *panel, const Bf16 *rows, Py_ssize_t stride, Py_ssize_t columns)
{
    (void)panel, (void)rows, (void)stride, (void)columns;
}
static void scores_back_bf16(float *scores, const float *of_p, const float *factors, const RowBack *r, uint32_t *down,
                             uint32_t *scores_down)
{
    (void)scores, (void)of_p, (void)factors, (void)r, (void)down, (void)scores_down;
}
static void write_block(Bf16 *y, Py_ssize_t to, const Bf16 *x, Py_ssize_t count, Py_ssize_t stride, int order)
{
    (void)y, (void)to, (void)x, (void)count, (void)stride, (void)order;
}
static void add_down(const Bf16 *x, Py_ssize_t size, const Bf16 *pairs, Py_ssize_t count, float *y, Py_ssize_t apart)
{
    (void)x, (void)size, (void)pairs, (void)count, (void)y, (void)apart;
}
static void write_transposed(float *y, const float *x, Py_ssize_t rows, Py_ssize_t columns)
{
    (void)y, (void)x, (void)rows, (void)columns;
}
static float exponentials_bf16(float *scores, Py_ssize_t from, Py_ssize_t to, Py_ssize_t filled, float scale,
                               float *highest)
{
    return (void)scores, (void)from, (void)to, (void)filled, (void)scale, (void)highest, 0;
}
static void pack(const Bf16 *x, Py_ssize_t rows, Py_ssize_t columns, Bf16 *y, int order, int threads)
{
    (void)x, (void)rows, (void)columns, (void)y, (void)order, (void)threads;
}
static void narrow(Bf16 *x, const float *wide, Py_ssize_t width) { (void)wide, (void)x, (void)width; }
#endif

/* Return the bits of the widest registers that products can use here; 0: there are none. */
static int registers(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 512 : 256;
}

/* Return whether products can be in bf16. */
static int multiplies_bf16(void) { return registers() == 512 && HAS_BF16; }

static int is_bf16(int bits) { return bits == BF16 || bits == TILES; }

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

/* Compute a product of attention in this thread; y is float. */
static void multiply_all(const Product *p, int bits)
{
    if (is_bf16(bits)) {
        multiply_all_bf16(p, bits);
        return;
    }
    const int each = bits == 512 ? 2 : 1;
    for (Py_ssize_t column = 0; column < p->outputs; column += each * WIDE)
        multiply_panels(p, bits, 0, p->rows, column, column + each * WIDE <= p->outputs ? each : 1);
}

/* Compute what needs whole rows of a product. */
static void finish_row(const Product *p, Py_ssize_t row)
{
    float *const y = (float *)p->y + row * p->outputs, *const normed = (float *)p->normed + row * p->outputs;
    if (p->gelu == GATED) gate(y, p->outputs);
    if (p->scale) normalize(normed, y, p->outputs, p->scale, p->shift, p->epsilon);
}

/* Compute a product but for what needs whole rows, by all threads of a parallel region. */
static void multiply_shares(const Product *p, int bits, int threads)
{
    const Py_ssize_t panels = p->outputs / WIDE, each = bits == 256 ? 1 : 2, parts = (panels + each - 1) / each;
    if (bits == TILES) {
        /* a share of the rows for each thread, or of the panels if these are more; of both, if there are too few */
        const Py_ssize_t blocks = (p->rows + TALL_TILES - 1) / TALL_TILES, most = parts > blocks ? parts : blocks;
        const Py_ssize_t shares = most < threads ? most : threads, others = (threads + shares - 1) / shares;
        const Py_ssize_t across = parts > blocks ? shares : others, down = parts > blocks ? others : shares;
#pragma omp for schedule(static)
        for (Py_ssize_t share = 0; share < across * down; share++) {
            const Py_ssize_t part = share % across, block = share / across;
            const Py_ssize_t first = parts * part / across * each, last = parts * (part + 1) / across * each;
            const Py_ssize_t top = blocks * block / down * TALL_TILES, stop = blocks * (block + 1) / down * TALL_TILES;
            multiply_panels_tiles(p, top, (stop < p->rows ? stop : p->rows) - top, first, last < panels ? last : panels);
        }
        release_tiles();
        return;
    }
    const Py_ssize_t size = CHUNK / p->width < tallest(bits) ? tallest(bits) : CHUNK / p->width;
    const Py_ssize_t chunks = (p->rows + size - 1) / size;
#pragma omp for schedule(static)
    for (Py_ssize_t task = 0; task < chunks * parts; task++) {
        const Py_ssize_t chunk = task / parts, first = task % parts * each, top = p->rows * chunk / chunks;
        const Py_ssize_t count = p->rows * (chunk + 1) / chunks - top;
        const int together = first + each <= panels ? (int)each : 1;
        if (bits == BF16) multiply_panels_bf16(p, top, count, first * WIDE, together);
        else multiply_panels(p, bits, top, count, first * WIDE, together);
    }
}

static void multiply(const Product *p, int bits, int threads)
{
    const int several = threads > 1 && (double)p->rows * p->width * p->outputs >= LEAST;
#pragma omp parallel num_threads(threads) if (several)
    {
        multiply_shares(p, bits, several ? threads : 1);
        if (p->scale || p->gelu == GATED) {
#pragma omp for schedule(static)
            for (Py_ssize_t row = 0; row < p->rows; row++) {
                if (is_bf16(bits)) finish_row_bf16(p, row);
                else finish_row(p, row);
            }
        }
    }
}

static Py_ssize_t bytes_of(int bits) { return is_bf16(bits) ? sizeof(Bf16) : sizeof(float); }

static Py_ssize_t filled_up(Py_ssize_t length) { return (length + WIDE - 1) / WIDE * WIDE; }

/* Copy numbers as float; fetch those that lie `ahead` numbers after them. */
__attribute__((target("avx2,fma"))) static inline void read_row(float *to, const void *from, Py_ssize_t start,
                                                                Py_ssize_t size, int bits, Py_ssize_t ahead)
{
    if (is_bf16(bits)) {
        widen(to, (const Bf16 *)from + start, size);
        for (Py_ssize_t i = 0; i < size; i += 32) __builtin_prefetch((const Bf16 *)from + start + ahead + i);
        return;
    }
    for (Py_ssize_t i = 0; i < size; i += WIDE) {
        const float *const x = (const float *)from + start + i;
        _mm256_storeu_ps(to + i, _mm256_loadu_ps(x));
        _mm256_storeu_ps(to + i + 8, _mm256_loadu_ps(x + 8));
        __builtin_prefetch(x + ahead);
    }
}

/* Write numbers that are float as what they are in the matrix. */
static void write_row(void *to, Py_ssize_t start, const float *from, Py_ssize_t size, int bits)
{
    if (is_bf16(bits)) narrow((Bf16 *)to + start, from, size);
    else memcpy((float *)to + start, from, size * sizeof *from);
}

/* Rotate the pairs of a row, or back. */
__attribute__((target("avx2,fma"))) static void rotate(float *x, const Attention *a, Py_ssize_t position, int back)
{
    if (!a->cosine) return;
    const float *const cosine = a->cosine + position * a->size / 2, *const sine = a->sine + position * a->size / 2;
    const Py_ssize_t apart = a->adjacent ? 1 : a->size / 2, step = a->adjacent ? 2 : 1;
    for (Py_ssize_t i = 0; i < a->size / 2; i++) {
        float *const first = x + i * step, *const second = first + apart, kept = *first;
        const float sign = back ? -sine[i] : sine[i];
        *first = kept * cosine[i] - *second * sign;
        *second = *second * cosine[i] + kept * sign;
    }
}

/* Convert a row of float to what products read, in place.

   Not just after it has been written: what registers of 256 bits have stored cannot be loaded at once by one of 512. */
static void convert(float *row, Py_ssize_t size, int bits)
{
    if (is_bf16(bits)) narrow((Bf16 *)row, row, size); /* each number is read before its place is written to */
}

/* Read a head's query, key or value of a token, rotated, as products read it. */
__attribute__((target("avx2,fma"))) static void read_part(float *to, const Attention *a, int bits, Py_ssize_t start,
                                                          Py_ssize_t position, int part, Py_ssize_t head,
                                                          Py_ssize_t ahead)
{
    const Py_ssize_t from = ((start + position) * 3 + part) * a->heads * a->size + head * a->size;
    if (is_bf16(bits) && (part == VALUE || !a->cosine)) {
        const Bf16 *const x = (const Bf16 *)a->qkv + from;
        memcpy(to, x, a->size * sizeof *x);
        for (Py_ssize_t i = 0; i < a->size; i += 32) __builtin_prefetch(x + ahead + i);
        return;
    }
    read_row(to, a->qkv, from, a->size, bits, ahead);
    if (part != VALUE) rotate(to, a, position, 0);
    convert(to, a->size, bits);
}

/* Place 16 rows, `size` floats apart, in a panel that multiplies them as rows of a weight. */
static void place(void *panel, const float *rows, Py_ssize_t size, int bits)
{
    if (is_bf16(bits)) {
        write_panel(panel, (const Bf16 *)rows, 2 * size, size);
        return;
    }
    float *const column = panel;
    for (Py_ssize_t i = 0; i < WIDE; i++)
        for (Py_ssize_t j = 0; j < size; j++) column[j * WIDE + i] = rows[i * size + j];
}

/* Place row i in panels, `filled` rows high, that multiply it as a column of a weight. */
static void place_across(void *panels, const void *row, Py_ssize_t i, Py_ssize_t filled, Py_ssize_t size, int bits)
{
    for (Py_ssize_t j = 0; j < size; j += WIDE) {
        if (is_bf16(bits))
            place_halves((uint32_t *)panels + (j / WIDE * (filled / 2) + i / 2) * WIDE, (const Bf16 *)row + j, WIDE,
                         i % 2);
        else memcpy((float *)panels + (j / WIDE * filled + i) * WIDE, (const float *)row + j, WIDE * sizeof(float));
    }
}

/* Return e^(scale (score - highest)); what is not a number remains. */
__attribute__((target("avx2,fma"))) static inline __m256 powers(const float *scores, __m256 scale, __m256 highest)
{
    const __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(scores), highest), scale);
    /* of what is not a number, the maximum is the second operand */
    return exponential(_mm256_max_ps(_mm256_set1_ps(-87), x));
}

/* Set numbers of a row outside of [from, to) to a value. */
static inline void set_outside(float *x, Py_ssize_t from, Py_ssize_t to, Py_ssize_t filled, float value)
{
    for (Py_ssize_t i = 0; i < from; i++) x[i] = value;
    for (Py_ssize_t i = to; i < filled; i++) x[i] = value;
}

/* Set `filled` scores to e^(scale (score - highest)) in [from, to) and to 0 elsewhere; return sum and highest score. */
__attribute__((target("avx2,fma"))) static float exponentials(float *scores, Py_ssize_t from, Py_ssize_t to,
                                                              Py_ssize_t filled, float scale, float *highest)
{
    __m256 most = _mm256_set1_ps(-INFINITY), sums = _mm256_setzero_ps();
    set_outside(scores, from, to, filled, -INFINITY);
    for (Py_ssize_t i = 0; i < filled; i += 8) most = _mm256_max_ps(_mm256_loadu_ps(scores + i), most);
    float lanes[8];
    _mm256_storeu_ps(lanes, most);
    *highest = -INFINITY;
    for (int i = 0; i < 8; i++) *highest = lanes[i] > *highest ? lanes[i] : *highest;
    for (Py_ssize_t i = 0; i < filled; i += 8)
        _mm256_storeu_ps(scores + i, powers(scores + i, _mm256_set1_ps(scale), _mm256_set1_ps(*highest)));
    set_outside(scores, from, to, filled, 0);
    for (Py_ssize_t i = 0; i < filled; i += 8) sums = _mm256_add_ps(sums, _mm256_loadu_ps(scores + i));
    return total(sums);
}

/* The scores that some queries have: of keys [first, first + count), those of the sequence that any of them attends to,
   filled up. */
typedef struct {
    Py_ssize_t first, count;
} Reach;

static Reach reach_of(const Attention *a, Py_ssize_t length, Py_ssize_t top, Py_ssize_t rows)
{
    const Py_ssize_t first = top > a->before ? (top - a->before) / WIDE * WIDE : 0, last = top + rows + a->after;
    return (Reach){first, filled_up((last < length ? last : length) - first)};
}

/* Set [from, to) to the scores that a query attends to. */
static void limits(const Attention *a, Py_ssize_t length, Reach reach, Py_ssize_t query, Py_ssize_t *from,
                   Py_ssize_t *to)
{
    const Py_ssize_t at = query - reach.first, stop = at + a->after + 1, end = length - reach.first;
    *from = at > a->before ? at - a->before : 0;
    *to = stop < end ? stop : end;
}

/* Return the most rows of scores at a time: a block of tiles, or QUERIES. */
static Py_ssize_t queries_of(int bits) { return bits == TILES ? TALL_TILES : QUERIES; }

/* Return the floats that `attend_head` needs besides, for sequences of at most this length. */
static Py_ssize_t scratch_size(const Attention *a, Py_ssize_t longest)
{
    return 2 * filled_up(longest) * a->size + QUERIES * (filled_up(longest) + 2 * a->size) + a->size;
}

/* Compute a head's attention in the sequence [start, start + length); `ahead` is as for `read_row`. */
__attribute__((target("avx2,fma"))) static void attend_head(const Attention *a, int bits, Py_ssize_t start,
                                                            Py_ssize_t length, Py_ssize_t head, Py_ssize_t ahead,
                                                            float *scratch)
{
    const Py_ssize_t size = a->size, width = a->heads * size, filled = filled_up(length), bytes = bytes_of(bits);
    float *const keys = scratch, *const values = keys + filled * size, *const row = values + filled * size;
    float *const queries = row + size, *const scores = queries + QUERIES * size, *const y = scores + QUERIES * filled;
    const Py_ssize_t most = queries_of(bits);
    const float scale = 1 / sqrtf(size);
    for (Py_ssize_t i = 0; i < filled; i++) { /* keys and values in panels, filled up with 0 */
        float *const key = queries + i % WIDE * size;
        memset(key, 0, size * sizeof *key);
        memset(row, 0, size * sizeof *row);
        if (i < length) read_part(key, a, bits, start, i, KEY, head, ahead);
        if (i < length) read_part(row, a, bits, start, i, VALUE, head, ahead);
        if (i % WIDE == WIDE - 1) place((char *)keys + i / WIDE * WIDE * size * bytes, queries, size, bits);
        place_across(values, row, i, filled, size, bits);
    }
    for (Py_ssize_t top = 0; top < length; top += most) {
        const Py_ssize_t rows = length - top < most ? length - top : most;
        for (Py_ssize_t i = 0; i < rows; i++)
            read_part(queries + i * size, a, bits, start, top + i, QUERY, head, ahead);
        const Reach reach = reach_of(a, length, top, rows);
        multiply_all(&(Product){.x = queries, .panels = (char *)keys + reach.first * size * bytes,
                                .apart = size * WIDE, .y = scores, .rows = rows, .stride = size * sizeof(float) / bytes,
                                .step = sizeof(float) / bytes, .width = size, .outputs = reach.count}, bits);
        float factors[QUERIES];
        for (Py_ssize_t i = 0; i < rows; i++) {
            float *const x = scores + i * reach.count, highest;
            const Py_ssize_t query = start + top + i;
            Py_ssize_t from, to;
            limits(a, length, reach, top + i, &from, &to);
            const float sum = is_bf16(bits) ? exponentials_bf16(x, from, to, reach.count, scale, &highest)
                                            : exponentials(x, from, to, reach.count, scale, &highest);
            factors[i] = 1 / sum;
            if (a->sums) {
                float *const sums = a->sums + 2 * (query * a->heads + head);
                sums[0] = highest, sums[1] = sum;
            }
            if (!a->dropped) continue;
            const Random random = random_of(a->seed, query * a->heads + head);
            const float share = scale_of(a->dropped);
            for (Py_ssize_t j = 0; j < reach.count; j++)
                x[j] *= is_kept(random, reach.first + j, a->dropped) ? share : 0;
        }
        for (Py_ssize_t i = 0; i < rows; i++) convert(scores + i * reach.count, reach.count, bits);
        multiply_all(&(Product){.x = scores, .panels = (char *)values + reach.first * WIDE * bytes,
                                .apart = filled * WIDE, .y = y, .rows = rows,
                                .stride = reach.count * sizeof(float) / bytes, .step = sizeof(float) / bytes,
                                .width = reach.count, .outputs = size}, bits);
        for (Py_ssize_t i = 0; i < rows; i++)
            for (Py_ssize_t j = 0; j < size; j++) y[i * size + j] *= factors[i];
        for (Py_ssize_t i = 0; i < rows; i++)
            write_row(a->y, (start + top + i) * width + head * size, y + i * size, size, bits);
    }
}

/* Return the floats that `attend_head_back` needs besides. */
static Py_ssize_t scratch_size_back(const Attention *a, Py_ssize_t longest)
{
    return (5 * a->size + 1) * filled_up(longest) + QUERIES * (4 * filled_up(longest) + 5 * a->size) + a->size;
}

/* Compute the gradients of a head's queries, keys and values in a sequence; arguments are as for `attend_head`. */
__attribute__((target("avx2,fma"))) static void attend_head_back(const Gradient *g, int bits, Py_ssize_t start,
                                                                 Py_ssize_t length, Py_ssize_t head, Py_ssize_t ahead,
                                                                 float *scratch)
{
    const Attention *const a = &g->of;
    const Py_ssize_t size = a->size, width = a->heads * size, filled = filled_up(length), whole = filled * size;
    const Py_ssize_t bytes = bytes_of(bits), step = sizeof(float) / bytes, most = queries_of(bits);
    const int tiles = bits == TILES;
    const float scale = 1 / sqrtf(size);
    /* keys as rows and as columns of a weight, values as rows; the sums of their gradients */
    float *const keys = scratch, *const across = keys + whole, *const values = across + whole;
    float *of_keys = values + whole, *of_values = of_keys + whole, *const row = of_values + whole;
    float *const queries = row + size, *const queries_across = queries + QUERIES * size;
    float *const grads = queries_across + QUERIES * size, *const grads_across = grads + QUERIES * size;
    float *const of_queries = grads_across + QUERIES * size;
    float *const probabilities = of_queries + QUERIES * size, *const scores = probabilities + QUERIES * filled;
    /* the same, as numbers that products read down a column */
    float *const down = scores + QUERIES * filled, *const scores_down = down + QUERIES * filled;
    float *const factors = scores_down + QUERIES * filled; /* of probabilities, by dropout */
    for (Py_ssize_t i = 0; i < filled; i++) {
        float *const key = queries + i % WIDE * size, *const value = grads + i % WIDE * size;
        const Py_ssize_t panel = i / WIDE * WIDE * size * bytes;
        memset(key, 0, size * sizeof *key);
        memset(value, 0, size * sizeof *value);
        if (i < length) read_part(key, a, bits, start, i, KEY, head, ahead);
        if (i < length) read_part(value, a, bits, start, i, VALUE, head, ahead);
        place_across(across, key, i, filled, size, bits);
        if (i % WIDE < WIDE - 1) continue;
        place((char *)keys + panel, queries, size, bits);
        place((char *)values + panel, grads, size, bits);
    }
    memset(of_keys, 0, 2 * whole * sizeof *of_keys);
    for (Py_ssize_t top = 0; top < length; top += most) {
        const Py_ssize_t rows = length - top < most ? length - top : most, even = rows + rows % 2;
        float together[QUERIES]; /* products of outputs and their gradients */
        for (Py_ssize_t i = 0; i < rows; i++) {
            const Py_ssize_t token = start + top + i;
            float *const query = queries + i * size, *const grad = grads + i * size;
            read_part(query, a, bits, start, top + i, QUERY, head, ahead);
            if (!tiles) place_across(queries_across, query, i, even, size, bits);
            read_row(row, a->y, token * width + head * size, size, bits, ahead);
            read_row(grad, g->grad, token * width + head * size, size, bits, ahead);
            __m256 sums = _mm256_setzero_ps();
            for (Py_ssize_t j = 0; j < size; j += 8)
                sums = _mm256_fmadd_ps(_mm256_loadu_ps(row + j), _mm256_loadu_ps(grad + j), sums);
            together[i] = total(sums);
            convert(grad, size, bits);
            if (!tiles) place_across(grads_across, grad, i, even, size, bits);
        }
        for (Py_ssize_t j = 0; tiles && j < size; j += WIDE) {
            const Bf16 *const of_query = (const Bf16 *)queries + j, *const of_grad = (const Bf16 *)grads + j;
            write_block((Bf16 *)queries_across + j * DEEP, DEEP, of_query, rows, 2 * size, DOWN);
            write_block((Bf16 *)grads_across + j * DEEP, DEEP, of_grad, rows, 2 * size, DOWN);
        }
        const Reach reach = reach_of(a, length, top, rows);
        const Py_ssize_t count = reach.count, offset = reach.first * size;
        const Product product = {.apart = size * WIDE, .rows = rows, .stride = size * step, .step = step,
                                 .width = size, .outputs = count};
        Product of_scores = product, of_grads = product;
        of_scores.x = queries, of_scores.panels = (char *)keys + offset * bytes, of_scores.y = probabilities;
        of_grads.x = grads, of_grads.panels = (char *)values + offset * bytes, of_grads.y = scores;
        multiply_all(&of_scores, bits);
        multiply_all(&of_grads, bits);
        for (Py_ssize_t i = 0; i < rows; i++) {
            float *const p = probabilities + i * count, *const of_score = scores + i * count;
            const Py_ssize_t token = start + top + i;
            const float *const sums = a->sums + 2 * (token * a->heads + head);
            Py_ssize_t from, to;
            limits(a, length, reach, top + i, &from, &to);
            if (a->dropped) {
                const Random random = random_of(a->seed, token * a->heads + head);
                for (Py_ssize_t j = 0; j < count; j++)
                    factors[j] = is_kept(random, reach.first + j, a->dropped) ? scale_of(a->dropped) : 0;
            }
            if (is_bf16(bits)) {
                const RowBack row_back = {scale, sums[0], 1 / sums[1], together[i], from, to, count, i % 2};
                const Py_ssize_t pairs = i / 2 * count;
                scores_back_bf16(p, of_score, a->dropped ? factors : NULL, &row_back, (uint32_t *)down + pairs,
                                 (uint32_t *)scores_down + pairs);
                continue;
            }
            const __m256 highest = _mm256_set1_ps(sums[0]), inverse = _mm256_set1_ps(1 / sums[1]);
            const __m256 same = _mm256_set1_ps(together[i]), one = _mm256_set1_ps(1);
            for (Py_ssize_t j = 0; j < count; j += 8) {
                const __m256 x = _mm256_mul_ps(powers(p + j, _mm256_set1_ps(scale), highest), inverse);
                const __m256 factor = a->dropped ? _mm256_loadu_ps(factors + j) : one;
                const __m256 grad = _mm256_fmsub_ps(_mm256_loadu_ps(of_score + j), factor, same);
                _mm256_storeu_ps(p + j, _mm256_mul_ps(x, factor));
                _mm256_storeu_ps(of_score + j, _mm256_mul_ps(x, grad));
            }
            set_outside(p, from, to, count, 0);
            set_outside(of_score, from, to, count, 0);
        }
        multiply_all(&(Product){.x = is_bf16(bits) ? probabilities : scores,
                                .panels = (char *)across + reach.first * WIDE * bytes, .apart = filled * WIDE,
                                .y = of_queries, .rows = rows, .stride = count * step, .step = step, .width = count,
                                .outputs = size}, bits);
        if (tiles) {
            const Py_ssize_t missing = (DEEP / 2 - even / 2) * count, from = even / 2 * count;
            memset((uint32_t *)down + from, 0, missing * sizeof *down);
            memset((uint32_t *)scores_down + from, 0, missing * sizeof *down);
            add_down((Bf16 *)queries_across, size, (Bf16 *)scores_down, count, of_keys + reach.first, filled);
            add_down((Bf16 *)grads_across, size, (Bf16 *)down, count, of_values + reach.first, filled);
        } else {
            const Product downward = {.apart = even * WIDE, .rows = count, .stride = step, .step = count * step,
                                      .width = is_bf16(bits) ? even : rows, .outputs = size};
            Product to_keys = downward, to_values = downward;
            to_keys.x = is_bf16(bits) ? scores_down : scores, to_keys.panels = queries_across;
            to_keys.onto = to_keys.y = of_keys + offset;
            to_values.x = is_bf16(bits) ? down : probabilities, to_values.panels = grads_across;
            to_values.onto = to_values.y = of_values + offset;
            multiply_all(&to_keys, bits);
            multiply_all(&to_values, bits);
        }
        for (Py_ssize_t i = 0; i < rows; i++) {
            float *const of_query = of_queries + i * size;
            for (Py_ssize_t j = 0; j < size; j++) of_query[j] *= scale;
            rotate(of_query, a, top + i, 1);
        }
        for (Py_ssize_t i = 0; i < rows; i++)
            write_row(g->grad_qkv, (start + top + i) * 3 * width + head * size, of_queries + i * size, size, bits);
    }
    if (tiles) { /* their sums are transposed */
        write_transposed(keys, of_keys, size, filled);
        write_transposed(values, of_values, size, filled);
        of_keys = keys, of_values = values;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        float *const of_key = of_keys + i * size;
        for (Py_ssize_t j = 0; j < size; j++) of_key[j] *= scale;
        rotate(of_key, a, i, 1);
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        const Py_ssize_t to = (start + i) * 3 * width + head * size;
        write_row(g->grad_qkv, to + width, of_keys + i * size, size, bits);
        write_row(g->grad_qkv, to + 2 * width, of_values + i * size, size, bits);
    }
}

/* Return memory from the beginning of a cache line on: tiles whose rows cross lines are loaded a third as fast. */
static void *reserve(Py_ssize_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

/* Compute attention, or its gradient if `back`; return whether there was enough memory. */
static int attend(const Gradient *g, int back, int bits, int threads)
{
    const Attention *const a = &g->of;
    Py_ssize_t longest = 0;
    double scores = 0;
    for (Py_ssize_t i = 0; i < a->sequences; i++) {
        const Py_ssize_t length = a->offsets[i + 1] - a->offsets[i];
        longest = length > longest ? length : longest;
        scores += (double)length * length;
    }
    const double work = (back ? 5 : 2) * scores * a->heads * (a->size + WIDE); /* e^x counts as WIDE products */
    const int parts = work >= LEAST ? threads : 1;
    const Py_ssize_t size = back ? scratch_size_back(a, longest) : scratch_size(a, longest);
    float *const scratch = reserve(parts * size * sizeof *scratch);
    if (!scratch) return 0;
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (int part = 0; part < parts; part++) {
        for (Py_ssize_t task = part; task < a->sequences * a->heads; task += parts) {
            const Py_ssize_t sequence = task / a->heads, start = a->offsets[sequence], head = task % a->heads;
            const Py_ssize_t length = a->offsets[sequence + 1] - start, ahead = parts * a->size;
            if (back) attend_head_back(g, bits, start, length, head, ahead, scratch + part * size);
            else attend_head(a, bits, start, length, head, ahead, scratch + part * size);
        }
        if (bits == TILES) release_tiles();
    }
    free(scratch);
    const Py_ssize_t row = (back ? 3 : 1) * a->heads * a->size * bytes_of(bits);
    const Py_ssize_t end = a->offsets[a->sequences];
    if (end < a->rows) memset((char *)(back ? g->grad_qkv : a->y) + end * row, 0, (a->rows - end) * row);
    return 1;
}

/* Compute a product of a layer, whose rows are as wide as what is multiplied. */
static void multiply_rows(Product p, const void *x, Py_ssize_t stride, Py_ssize_t rows, const void *onto, void *y,
                          void *normed, int bits, int threads)
{
    p.x = x, p.stride = stride, p.rows = rows, p.onto = onto, p.y = y, p.normed = normed;
    multiply(&p, bits, threads);
}

/* Return whether there was enough memory. */
static int compute_layer(const Layer *l, int bits, int threads)
{
    Attention a = l->attention;
    const Py_ssize_t width = a.heads * a.size, bytes = bytes_of(bits), row = width * bytes, inner = l->up.outputs;
    const int begins = l->begin.scale != NULL;
    const Py_ssize_t of_all = a.rows * row * (begins ? 5 : 4), of_some = l->count * (4 * row + inner * bytes);
    char *const scratch = reserve(of_all + of_some + 1);
    if (!scratch) return 0;
    char *const qkv = scratch, *const read = qkv + 3 * a.rows * row, *const normed = read + a.rows * row;
    char *const some = scratch + of_all, *const onto = some + l->count * row, *const z = onto + l->count * row;
    char *const unit = z + l->count * row, *const between = unit + l->count * row;
    if (begins) {
        Product begin = l->begin;
        begin.y = (void *)l->x, begin.normed = normed, begin.rows = a.rows, begin.outputs = width;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && a.rows * width >= LEAST / DEPTH)
        for (Py_ssize_t i = 0; i < a.rows; i++) {
            if (is_bf16(bits)) finish_row_bf16(&begin, i);
            else finish_row(&begin, i);
        }
    }
    multiply_rows(l->qkv, begins ? normed : l->x, width, a.rows, NULL, qkv, NULL, bits, threads);
    a.qkv = qkv, a.y = read;
    const int enough = attend(&(Gradient){.of = a}, 0, bits, threads);
    for (Py_ssize_t i = 0; l->selected && i < l->count; i++) {
        memcpy(some + i * row, read + l->selected[i] * row, row);
        memcpy(onto + i * row, (const char *)l->x + l->selected[i] * row, row);
    }
    void *const input = l->pre_norm ? unit : z;
    multiply_rows(l->out, l->selected ? some : read, width, l->count, l->selected ? onto : l->x, z, input, bits,
                  threads);
    multiply_rows(l->up, input, width, l->count, NULL, between, NULL, bits, threads);
    multiply_rows(l->down, between, inner, l->count, z, l->y, l->y, bits, threads);
    free(scratch);
    return enough;
}

#else
static int registers(void) { return 0; }
static int multiplies_bf16(void) { return 0; }
static int has_tiles(void) { return 0; }
static void pack(const Bf16 *x, Py_ssize_t rows, Py_ssize_t columns, Bf16 *y, int order, int threads)
{
    (void)x, (void)rows, (void)columns, (void)y, (void)order, (void)threads;
}
static void multiply(const Product *p, int bits, int threads) { (void)p, (void)bits, (void)threads; }
static int attend(const Gradient *g, int back, int bits, int threads)
{
    return (void)g, (void)back, (void)bits, (void)threads, 1;
}
static int compute_layer(const Layer *l, int bits, int threads) { return (void)l, (void)bits, (void)threads, 1; }
#endif

static PyObject *py_registers(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromLong(registers());
}

static PyObject *py_multiplies_bf16(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(multiplies_bf16());
}

static PyObject *py_has_tiles(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(has_tiles());
}

static PyObject *py_pack(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t v[6];
    (void)self;
    if (!read_integers(arguments, count, 6, v)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    pack((const Bf16 *)v[1], v[2], v[3], (Bf16 *)v[4], (int)v[5], (int)v[0]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_multiply(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Py_ssize_t products = (count - 2) / NUM_FIELDS;
    Product product[MOST];
    (void)self;
    if (products > MOST || count != 2 + products * NUM_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "multiply: wrong number of arguments");
        return NULL;
    }
    const int bits = (int)PyLong_AsLong(arguments[0]), threads = (int)PyLong_AsLong(arguments[1]);
    for (Py_ssize_t i = 0; i < products; i++) {
        PyObject *const *fields = arguments + 2 + i * NUM_FIELDS;
        Py_ssize_t values[NUM_FIELDS - 1];
        for (int j = 0; j < NUM_FIELDS - 1; j++) values[j] = PyLong_AsSsize_t(fields[j]);
        product[i] = (Product){(const void *)values[0], (const void *)values[1], (const void *)values[2],
                               (const void *)values[3], (void *)values[4], (void *)values[5], values[6], values[7],
                               values[8], values[9], (int)values[10], (const void *)values[11],
                               (const void *)values[12], (float)PyFloat_AsDouble(fields[NUM_FIELDS - 1]),
                               values[8] * WIDE, 1};
    }
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < products; i++) multiply(&product[i], bits, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Set an attention to its fields; return whether its sequences fit. */
static int read_attention(const Py_ssize_t *v, Attention *attention)
{
    const Attention a = {(const void *)v[0], (void *)v[1], (const int32_t *)v[2], v[3], v[4], v[5], v[6], v[7],
                         (const float *)v[8], (const float *)v[9], (int)v[10], v[11], v[12], (float *)v[13], v[14],
                         v[15]};
    int ascend = a.offsets[0] == 0 && a.offsets[a.sequences] <= a.rows, reach = 1;
    for (Py_ssize_t i = 0; i < a.sequences; i++) {
        const Py_ssize_t length = (Py_ssize_t)a.offsets[i + 1] - a.offsets[i];
        ascend &= length >= 0;
        reach &= length <= a.positions;
    }
    *attention = a;
    if (!ascend) PyErr_SetString(PyExc_ValueError, "offsets must ascend from 0 to at most the number of rows");
    else if (!reach) PyErr_SetString(PyExc_ValueError, "a table of angles for each position is needed");
    return ascend && reach;
}

/* Compute attention, or its gradient, of whose fields two more follow those of an Attention. */
static PyObject *attend_to(PyObject *const *arguments, Py_ssize_t count, int back)
{
    Py_ssize_t values[2 + ATTENTION_FIELDS + 2] = {0};
    Gradient gradient;
    if (!read_integers(arguments, count, 2 + ATTENTION_FIELDS + (back ? 2 : 0), values)) return NULL;
    if (!read_attention(values + 2, &gradient.of)) return NULL;
    gradient.grad = (const void *)values[2 + ATTENTION_FIELDS];
    gradient.grad_qkv = (void *)values[3 + ATTENTION_FIELDS];
    int enough;
    Py_BEGIN_ALLOW_THREADS
    enough = attend(&gradient, back, (int)values[0], (int)values[1]);
    Py_END_ALLOW_THREADS
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_attend(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    (void)self;
    return attend_to(arguments, count, 0);
}

static PyObject *py_attend_back(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    (void)self;
    return attend_to(arguments, count, 1);
}

static Product read_product(const Py_ssize_t *v, double epsilon)
{
    return (Product){.panels = (const void *)v[0], .bias = (const void *)v[1], .width = v[2], .outputs = v[3],
                     .gelu = (int)v[4], .scale = (const void *)v[5], .shift = (const void *)v[6],
                     .epsilon = (float)epsilon, .apart = v[2] * WIDE, .step = 1};
}

/* Set a layer to its fields; return whether they fit. */
static int read_layer(PyObject *const *arguments, Layer *layer)
{
    Py_ssize_t values[LAYER_FIELDS];
    double epsilons[LAYER_NORMS];
    if (!read_integers(arguments, LAYER_FIELDS, LAYER_FIELDS, values)) return 0;
    for (int i = 0; i < LAYER_NORMS; i++) epsilons[i] = PyFloat_AsDouble(arguments[LAYER_FIELDS + i]);
    if (PyErr_Occurred() || !read_attention(values, &layer->attention)) return 0;
    const Py_ssize_t *const v = values + ATTENTION_FIELDS, *const products = v + 3;
    layer->pre_norm = (int)v[0];
    layer->begin = (Product){.scale = (const void *)v[1], .shift = (const void *)v[2], .epsilon = (float)epsilons[0]};
    layer->qkv = read_product(products, 0);
    layer->out = read_product(products + PRODUCT_FIELDS, epsilons[1]);
    layer->up = read_product(products + 2 * PRODUCT_FIELDS, 0);
    layer->down = read_product(products + 3 * PRODUCT_FIELDS, epsilons[2]);
    return 1;
}

static PyObject *py_layers(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    enum { BEFORE = 7, EACH = LAYER_FIELDS + LAYER_NORMS };
    const Py_ssize_t number = (count - BEFORE) / EACH;
    Py_ssize_t v[BEFORE];
    Layer layers[MOST_LAYERS];
    (void)self;
    if (number < 1 || number > MOST_LAYERS) {
        PyErr_SetString(PyExc_TypeError, "layers: wrong number of arguments");
        return NULL;
    }
    if (!read_integers(arguments, count - number * EACH, BEFORE, v)) return NULL;
    for (Py_ssize_t i = 0; i < number; i++) {
        Layer *const layer = &layers[i];
        const int last = i == number - 1;
        if (!read_layer(arguments + BEFORE + i * EACH, layer)) return NULL;
        layer->x = (const void *)(i ? v[3] : v[2]), layer->y = (void *)(last ? v[4] : v[3]);
        layer->selected = last ? (const int64_t *)v[5] : NULL;
        layer->count = last ? v[6] : layer->attention.rows;
    }
    const Layer *const last = &layers[number - 1];
    for (Py_ssize_t i = 0; last->selected && i < last->count; i++)
        if (last->selected[i] < 0 || last->selected[i] >= last->attention.rows) {
            PyErr_SetString(PyExc_IndexError, "a row that is selected is not there");
            return NULL;
        }
    int enough = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; enough && i < number; i++) enough = compute_layer(&layers[i], (int)v[0], (int)v[1]);
    Py_END_ALLOW_THREADS
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"registers", py_registers, METH_NOARGS, "Return the bits of the registers that products can use; 0: none."},
    {"multiplies_bf16", py_multiplies_bf16, METH_NOARGS, "Return whether products can be in bf16."},
    {"has_tiles", py_has_tiles, METH_NOARGS, "Return whether products in bf16 can use tiles."},
    {"pack", (PyCFunction)(void (*)(void))py_pack, METH_FASTCALL,
     "pack(threads, x, rows, columns, y, order): write a matrix of bf16 in an order."},
    {"multiply", (PyCFunction)(void (*)(void))py_multiply, METH_FASTCALL,
     "multiply(registers or 16 for bf16, threads, *products): the fields of each Product, one after the other."},
    {"attend", (PyCFunction)(void (*)(void))py_attend, METH_FASTCALL,
     "attend(registers or 16 for bf16, threads, *attention): the fields of an Attention."},
    {"attend_back", (PyCFunction)(void (*)(void))py_attend_back, METH_FASTCALL,
     "attend_back(registers or 16 for bf16, threads, *attention, grad, grad_qkv): the fields of a Gradient."},
    {"layers", (PyCFunction)(void (*)(void))py_layers, METH_FASTCALL,
     "layers(registers or 16 for bf16, threads, x, between, y, rows or 0, number of rows, *layers): for each, the fields "
     "of an Attention and a Layer, and the norms' epsilons. `between` is for what a layer returns to the next one."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_panels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__panels(void) { return PyModule_Create(&module); }
