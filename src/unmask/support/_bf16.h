/* Products in bf16 by panels, with registers of 512 bits or tiles, what follows them, and what attention needs of them. */

#pragma once

/* What the gradients of a row of `count` scores need besides: of those in [from, to) the highest, 1 / the sum of powers, and
   the product of the outputs and their gradients. */
typedef struct {
    float scale, highest, inverse, together;
    Py_ssize_t from, to, count;
    int upper; /* in the upper halves of pairs, or in the lower ones */
} RowBack;

__attribute__((target("avx512f"))) static inline __m512 widened(const Bf16 *x)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16));
}

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

/* Return what `gelu` does to 2^-12 of it where x > -3, an eighth of what bf16 rounds, and to 1e-6 below: by an approximate
   quotient and fewer terms of 2^r = e^(r log 2). */
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

/* Compute what `multiply_panels` does with tiles, for panels [first, last). Rows of x stay in the first-level cache, and of
   the panels, which are stored as they are read, as many as fit stay in the second-level one. */
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

/* Compute a product of bf16 in this thread with tiles, with y and `onto` in float, and neither bias, GELU nor norm. */
static void multiply_all_tiles(const Product *p)
{
    for (Py_ssize_t row = 0; row < p->rows; row += TALL_TILES) {
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
}

/* Compute the same with registers. */
static void multiply_all_bf16(const Product *p)
{
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
        const __mmask16 real = places_in(j, r->from, r->to);
        const __m512 p = _mm512_maskz_mul_ps(real, power_of_2(_mm512_mul_ps(x, scale)), inverse);
        const __m512 factor = factors ? _mm512_loadu_ps(factors + j) : _mm512_set1_ps(1);
        const __m512 grad = _mm512_fmsub_ps(_mm512_loadu_ps(of_p + j), factor, together);
        store_narrow((Bf16 *)scores + j, _mm512_maskz_mul_ps(real, p, grad));
        place_halves(scores_down + j, (Bf16 *)scores + j, WIDE, r->upper);
        Bf16 kept[WIDE];
        store_narrow(kept, _mm512_mul_ps(p, factor));
        place_halves(down + j, kept, WIDE, r->upper);
    }
}

/* Compute what `finish` does. */
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
static void finish_bf16(const Product *p, const float *tile, Py_ssize_t top, Py_ssize_t count, Py_ssize_t column,
                        int panels)
{
    (void)p, (void)tile, (void)top, (void)count, (void)column, (void)panels;
}
static void multiply_all_tiles(const Product *p) { (void)p; }
static void multiply_all_bf16(const Product *p) { (void)p; }
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
