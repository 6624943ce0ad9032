/* Products of matrices in panels.

   A product of few rows is bound by reading the weights, so panels are read in the order in which they are stored, the
   next one is fetched while one is used, and one panel of at most DEPTH columns of x stays in the first-level cache for
   all rows. With registers of 512 bits two panels are used at a time, as otherwise the loads of x would take as long as
   the sums. Sums of DEPTH products are added up at the end, which rounds less than one long sum. A row is computed in
   the same way whatever the other rows are. Goto and van de Geijn 2008 describe the principle.

   In bf16 a panel holds pairs of columns, whose products VDPBF16PS adds to a sum in float32. With AMX, 16 such pairs of a
   panel are a tile, which TDPBF16PS multiplies with 16 rows of x. A sum is rounded once, after bias, addition and GELU.
   In int8 both are bytes, and only the numbers before and after are float or bf16.

   OpenMP's functions are those of the library that torch has loaded, so that there are no threads but torch's. */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_shared.h"

#define WIDE 16            /* columns of the output per panel: two registers of 256 bits, or one of 512 */
#define TALL 6             /* rows at a time: 12 of 16 registers hold sums */
#define TALL_512 12        /* with registers of 512 bits: 24 of 32 hold sums */
#define TALL_TILES 32      /* with tiles: four of eight hold sums, of 16 rows each */
#define DEEP 32            /* columns of a tile of x */
#define DEPTH 384          /* products per sum */
#define CHUNK 36864        /* numbers of x that stay in the second-level cache */
#define CHUNK_BYTES 147456 /* the same of bytes */
#define CHUNK_TILES 262144 /* with tiles, numbers of panels that stay there */
#define HEADER 128         /* bytes of a panel of bytes before its columns */
#define LEAST 524288.0     /* multiplications from which on several threads are used */
#define BF16 16            /* in place of the bits of registers: numbers are bf16, registers have 512 bits */
#define TILES 8            /* the same with tiles */

typedef uint16_t Bf16; /* the upper half of a float */

/* y = x weight^T + bias + onto, then GELU, and in `normed`, which may be y, LayerNorm of that with `scale` and `shift`;
   what is NULL or 0 is left out. Numbers are float or Bf16, those of panels perhaps bytes. */
typedef struct {
    const void *x, *panels, *bias, *onto;
    void *y, *normed;
    Py_ssize_t rows, stride, width, outputs; /* a row of x begins `stride` numbers after the last one */
    int bytes;                               /* whether the panels are of bytes */
    int gelu;                                /* GATED: the first half of a row becomes its GELU times the second half */
    const void *scale, *shift;
    float epsilon;
    Py_ssize_t apart, step; /* from one panel to the next, and in x from one column, or pair of columns, to the next */
} Product;
#define NUM_FIELDS 15
#define GATED 2
#define MOST 3 /* products per call */

static Py_ssize_t apart_of(Py_ssize_t width, int bytes) { return width * WIDE + (bytes ? HEADER : 0); }

/* Orders in which a matrix of bf16 is written: in panels as the rows of a weight or as its columns, or transposed; of
   columns, 0 follows up to a multiple of DEEP. */
enum { ROWS, COLUMNS, DOWN };

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include "_float32.h"
#include "_bf16.h"
#include "_bytes.h"

/* Return the bits of the widest registers that products can use here; 0: there are none. */
static int registers(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 512 : 256;
}

static void *reserve(Py_ssize_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

/* Return whether products can be in bf16. */
static int multiplies_bf16(void) { return registers() == 512 && HAS_BF16; }

/* Return whether products can be of bytes. */
static int multiplies_bytes(void) { return registers() == 512 && HAS_BYTES; }

static int is_bf16(int bits) { return bits == BF16 || bits == TILES; }

static Py_ssize_t bytes_of(int bits) { return is_bf16(bits) ? sizeof(Bf16) : sizeof(float); }

/* Compute a product of attention in this thread; y is float. */
static void multiply_all(const Product *p, int bits)
{
    const int each = bits == 512 ? 2 : 1;
    if (bits == TILES) multiply_all_tiles(p);
    else if (bits == BF16) multiply_all_bf16(p);
    for (Py_ssize_t column = 0; !is_bf16(bits) && column < p->outputs; column += each * WIDE)
        multiply_panels(p, bits, 0, p->rows, column, column + each * WIDE <= p->outputs ? each : 1);
}

/* Compute a product but for what needs whole rows, by all threads of a parallel region; `bytes` are its rows, if its panels
   are. */
static void multiply_shares(const Product *p, const ByteRows *bytes, int bits, int threads)
{
    const Py_ssize_t panels = p->outputs / WIDE, each = bits == 256 ? 1 : 2, parts = (panels + each - 1) / each;
    if (bits == TILES && !p->bytes) {
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
    const Py_ssize_t fit = (p->bytes ? CHUNK_BYTES : CHUNK) / p->width, size = fit < tallest(bits) ? tallest(bits) : fit;
    const Py_ssize_t chunks = (p->rows + size - 1) / size;
#pragma omp for schedule(static)
    for (Py_ssize_t task = 0; task < chunks * parts; task++) {
        const Py_ssize_t chunk = task / parts, first = task % parts * each, top = p->rows * chunk / chunks;
        const Py_ssize_t count = p->rows * (chunk + 1) / chunks - top;
        const int together = first + each <= panels ? (int)each : 1;
        if (p->bytes) multiply_panels_bytes(p, bytes, is_bf16(bits), top, count, first * WIDE, together);
        else if (bits == BF16) multiply_panels_bf16(p, top, count, first * WIDE, together);
        else multiply_panels(p, bits, top, count, first * WIDE, together);
    }
}

/* Compute what needs whole rows of a product. */
static void finish(const Product *p, int bits, Py_ssize_t row)
{
    if (is_bf16(bits)) finish_row_bf16(p, row);
    else finish_row(p, row);
}

/* Return whether there was enough memory. */
static int multiply(const Product *p, int bits, int threads)
{
    const int several = threads > 1 && (double)p->rows * p->width * p->outputs >= LEAST;
    const Py_ssize_t each = sizeof(float) + sizeof(int32_t);
    char *const scratch = p->bytes ? reserve(p->rows * (each + p->width) + 1) : NULL;
    if (p->bytes && !scratch) return 0;
    ByteRows rows = {NULL, NULL, NULL};
    if (scratch) rows = (ByteRows){(uint8_t *)scratch + p->rows * each, (float *)scratch, (int32_t *)scratch + p->rows};
#pragma omp parallel num_threads(threads) if (several)
    {
        if (p->bytes) {
#pragma omp for schedule(static)
            for (Py_ssize_t row = 0; row < p->rows; row++)
                to_bytes((const char *)p->x + row * p->stride * bytes_of(bits), is_bf16(bits), p->width,
                         rows.bytes + row * p->width, rows.scales + row, rows.zeros + row);
        }
        multiply_shares(p, &rows, bits, several ? threads : 1);
        if (p->scale || p->gelu == GATED) {
#pragma omp for schedule(static)
            for (Py_ssize_t row = 0; row < p->rows; row++) finish(p, bits, row);
        }
    }
    free(scratch);
    return 1;
}

#else
static int registers(void) { return 0; }
static int multiplies_bf16(void) { return 0; }
static int multiplies_bytes(void) { return 0; }
static int has_tiles(void) { return 0; }
static void pack(const Bf16 *x, Py_ssize_t rows, Py_ssize_t columns, Bf16 *y, int order, int threads)
{
    (void)x, (void)rows, (void)columns, (void)y, (void)order, (void)threads;
}
static int multiply(const Product *p, int bits, int threads) { return (void)p, (void)bits, (void)threads, 1; }
#endif
