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
#include "_threads.h"

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

/* Return memory from the beginning of a cache line on: tiles whose rows cross lines are loaded much more slowly. */
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

/* Return whether a product with some rows is worth several threads. */
static int is_large(const Product *p, Py_ssize_t rows) { return (double)rows * p->width * p->outputs >= LEAST; }

/* A product that is computed in tasks. */
typedef struct {
    const Product *p;
    int bits;
    ByteRows bytes; /* the rows, if panels are of bytes */
    Py_ssize_t down, across; /* parts of the rows, and of the panels */
} Shares;

#define ROUNDED 16 /* rows of a task */

/* Round some rows to bytes. */
static void round_rows(const void *about, Py_ssize_t task)
{
    const Shares *const s = about;
    const Product *const p = s->p;
    const ByteRows *const to = &s->bytes;
    const Py_ssize_t stop = (task + 1) * ROUNDED < p->rows ? (task + 1) * ROUNDED : p->rows;
    for (Py_ssize_t row = task * ROUNDED; row < stop; row++)
        to_bytes((const char *)p->x + row * p->stride * bytes_of(s->bits), is_bf16(s->bits), p->width,
                 to->bytes + row * p->width, to->scales + row, to->zeros + row);
}

/* Compute a share of the rows and panels of a product with tiles. */
static void multiply_share_tiles(const void *about, Py_ssize_t task)
{
    const Shares *const s = about;
    const Product *const p = s->p;
    const Py_ssize_t panels = p->outputs / WIDE, pairs = (panels + 1) / 2, part = task % s->across;
    const Py_ssize_t blocks = (p->rows + TALL_TILES - 1) / TALL_TILES, block = task / s->across;
    const Py_ssize_t first = pairs * part / s->across * 2, last = pairs * (part + 1) / s->across * 2;
    const Py_ssize_t top = blocks * block / s->down * TALL_TILES, stop = blocks * (block + 1) / s->down * TALL_TILES;
    multiply_panels_tiles(p, top, (stop < p->rows ? stop : p->rows) - top, first, last < panels ? last : panels);
    release_tiles();
}

/* Compute a panel, or two, with a share of the rows. */
static void multiply_share(const void *about, Py_ssize_t task)
{
    const Shares *const s = about;
    const Product *const p = s->p;
    const Py_ssize_t each = s->bits == 256 ? 1 : 2, chunk = task / s->across, first = task % s->across * each;
    const Py_ssize_t top = p->rows * chunk / s->down, count = p->rows * (chunk + 1) / s->down - top;
    const int together = (first + each) * WIDE <= p->outputs ? (int)each : 1;
    if (p->bytes) multiply_panels_bytes(p, &s->bytes, is_bf16(s->bits), top, count, first * WIDE, together);
    else if (s->bits == BF16) multiply_panels_bf16(p, top, count, first * WIDE, together);
    else multiply_panels(p, s->bits, top, count, first * WIDE, together);
}

/* Compute what needs whole rows of a product. */
static void finish(const Product *p, int bits, Py_ssize_t row)
{
    if (is_bf16(bits)) finish_row_bf16(p, row);
    else finish_row(p, row);
}

/* Compute what needs whole rows of a product that is computed in tasks. */
static void finish_task(const void *about, Py_ssize_t row)
{
    const Shares *const s = about;
    finish(s->p, s->bits, row);
}

/* Return whether there was enough memory. */
static int multiply(const Product *p, int bits, Team team)
{
    const int several = is_large(p, p->rows);
    const Py_ssize_t panels = p->outputs / WIDE, parts = bits == 256 ? panels : (panels + 1) / 2;
    const Py_ssize_t each = sizeof(float) + sizeof(int32_t), threads = several ? team.threads : 1;
    Shares s = {.p = p, .bits = bits};
    char *scratch = NULL;
    if (p->bytes) {
        if (!(scratch = reserve(p->rows * (each + p->width) + 1))) return 0;
        s.bytes = (ByteRows){(uint8_t *)scratch + p->rows * each, (float *)scratch, (int32_t *)scratch + p->rows};
        share(team, several, (p->rows + ROUNDED - 1) / ROUNDED, round_rows, &s);
    }
    if (bits == TILES && !p->bytes) {
        /* a share of the rows for each thread, or of the panels if these are more; of both, if there are too few */
        const Py_ssize_t blocks = (p->rows + TALL_TILES - 1) / TALL_TILES, most = parts > blocks ? parts : blocks;
        const Py_ssize_t shares = most < threads ? most : threads, others = (threads + shares - 1) / shares;
        s.across = parts > blocks ? shares : others, s.down = parts > blocks ? others : shares;
        share(team, several, s.across * s.down, multiply_share_tiles, &s);
    } else {
        const Py_ssize_t fit = (p->bytes ? CHUNK_BYTES : CHUNK) / p->width;
        const Py_ssize_t size = fit < tallest(bits) ? tallest(bits) : fit;
        s.across = parts, s.down = (p->rows + size - 1) / size;
        share(team, several, s.across * s.down, multiply_share, &s);
    }
    if (p->scale || p->gelu == GATED) share(team, several, p->rows, finish_task, &s);
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
static int multiply(const Product *p, int bits, Team team) { return (void)p, (void)bits, (void)team, 1; }
#endif
