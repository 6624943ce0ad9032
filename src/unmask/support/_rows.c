/* Functions of the rows of matrices, and their gradients, for rows.py. Callers check all arguments.

   Rows are of float or of bf16, and computed in float. What gradients add up over rows is added up in chunks of rows
   first, so that the sums are accurate and do not depend on the number of threads.

   OpenMP's functions are those of the library that torch has loaded, so that there are no threads but torch's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_numbers.h"
#include "_shared.h"

#define LANES 16 /* of which widths are multiples */
#define CHUNK 64    /* rows whose gradients are added up first */
#define LEAST 32768 /* numbers from which on several threads are used */

/* z = onto + dropout(x), y = LayerNorm(z); without `onto` z is x. */
typedef struct {
    const void *x, *onto;
    void *z, *y;
    float *statistics; /* (rows, 2): mean and reciprocal standard deviation */
    const void *scale, *shift;
    Py_ssize_t rows, width, dropped, seed;
    float epsilon;
} Norm;
#define NORM_FIELDS 12

/* The gradients of z, x, `scale` and `shift`, given that of y; that of x is not written if there is no dropout. */
typedef struct {
    const void *grad, *z;
    const float *statistics;
    const void *scale;
    void *of_z, *of_x;
    float *sums; /* (2, width): the gradients of scale and shift */
    Py_ssize_t rows, width, dropped, seed;
} NormBack;
#define NORM_BACK_FIELDS 11

/* y = GELU(x), or, if `gated`, GELU of the first half of a row of x times the second half; with `grad`, that of y, the
   gradient of x instead. */
typedef struct {
    const void *x, *grad;
    void *y;
    Py_ssize_t rows, width; /* of a row of y, or of `grad` */
    int gated;
} Gelu;
#define GELU_FIELDS 6

INLINE float total(const float *sums)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += sums[i];
    return sum;
}

/* Return the probability that a normal number is less than x, (1 + erf(x / sqrt(2))) / 2, and set `power` to e^(-x^2/2).

   Abramowitz and Stegun 1964, 7.1.26: the error of erf is at most 1.5e-7. The power is 2^n e^r with |r| <= log(2) / 2,
   by Taylor; adding 1.5 * 2^23 rounds to n. */
INLINE float probability(float x, float *power)
{
    const float size = fabsf(x), square = 0.5f * x * x, exponent = square < 87 ? square : 87;
    const float rounded = exponent * -1.44269504f + 12582912.0f, n = rounded - 12582912.0f;
    const float r = -exponent - n * 0.693359375f - n * -2.12194440e-4f;
    float y = 1 / 720.0f;
    y = y * r + 1 / 120.0f;
    y = y * r + 1 / 24.0f;
    y = y * r + 1 / 6.0f;
    y = y * r + 0.5f;
    y = y * r + 1;
    y = y * r + 1;
    uint32_t bits, shift;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&shift, &rounded, sizeof shift);
    bits += shift << 23;
    memcpy(power, &bits, sizeof bits);
    const float t = 1 / (1 + 0.3275911f * 0.707106781f * size);
    float tail = 1.061405429f;
    tail = tail * t - 1.453152027f;
    tail = tail * t + 1.421413741f;
    tail = tail * t - 0.284496736f;
    tail = tail * t + 0.254829592f;
    tail *= 0.5f * t * *power;
    return x < 0 ? tail : 1 - tail;
}

INLINE void norm_row(const Norm *n, Py_ssize_t row, int bf16)
{
    const Py_ssize_t start = row * n->width, width = n->width;
    const void *const z = n->onto ? n->z : n->x;
    if (n->onto) {
        const Random random = random_of(n->seed, row);
        const float share = scale_of(n->dropped);
        for (Py_ssize_t i = 0; i < width; i++) {
            const float factor = is_kept(random, i, n->dropped) ? share : 0;
            store(n->z, start + i, load(n->x, start + i, bf16) * factor + load(n->onto, start + i, bf16), bf16);
        }
    }
    float sums[LANES] = {0}, squares[LANES] = {0};
    for (Py_ssize_t i = 0; i < width; i += LANES)
        for (int j = 0; j < LANES; j++) sums[j] += load(z, start + i + j, bf16);
    const float mean = total(sums) / width;
    for (Py_ssize_t i = 0; i < width; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float centered = load(z, start + i + j, bf16) - mean;
            squares[j] += centered * centered;
        }
    const float variance = total(squares) / width;
    /* where it overflows, its root would be taken for infinity and the row for 0 */
    const float factor = variance <= FLT_MAX ? 1 / sqrtf(variance + n->epsilon) : NAN;
    n->statistics[2 * row] = mean, n->statistics[2 * row + 1] = factor;
    for (Py_ssize_t i = 0; i < width; i++) {
        const float unit = (load(z, start + i, bf16) - mean) * factor;
        store(n->y, start + i, unit * load(n->scale, i, bf16) + (n->shift ? load(n->shift, i, bf16) : 0), bf16);
    }
}

/* Write the gradients of a row, and add those of scale and shift to `sums`. */
INLINE void norm_row_back(const NormBack *n, Py_ssize_t row, float *restrict sums, int bf16)
{
    const Py_ssize_t start = row * n->width, width = n->width;
    const float mean = n->statistics[2 * row], factor = n->statistics[2 * row + 1];
    float first[LANES] = {0}, second[LANES] = {0};
    for (Py_ssize_t i = 0; i < width; i += LANES)
        for (int j = 0; j < LANES; j++) {
            const float unit = (load(n->z, start + i + j, bf16) - mean) * factor;
            const float grad = load(n->grad, start + i + j, bf16), scaled = grad * load(n->scale, i + j, bf16);
            first[j] += scaled;
            second[j] += scaled * unit;
            sums[i + j] += grad * unit;
            sums[width + i + j] += grad;
        }
    const float of_first = total(first) / width, of_second = total(second) / width;
    for (Py_ssize_t i = 0; i < width; i++) {
        const float unit = (load(n->z, start + i, bf16) - mean) * factor;
        const float grad = load(n->grad, start + i, bf16) * load(n->scale, i, bf16);
        store(n->of_z, start + i, (grad - of_first - unit * of_second) * factor, bf16);
    }
    if (!n->dropped) return;
    const Random random = random_of(n->seed, row);
    const float share = scale_of(n->dropped);
    for (Py_ssize_t i = 0; i < width; i++)
        store(n->of_x, start + i, load(n->of_z, start + i, bf16) * (is_kept(random, i, n->dropped) ? share : 0), bf16);
}

INLINE void gelu_row(const Gelu *g, Py_ssize_t row, int gated, int bf16)
{
    const Py_ssize_t start = row * g->width, from = gated ? 2 * start : start, gates = from + g->width;
    for (Py_ssize_t i = 0; i < g->width; i++) {
        const float x = load(g->x, from + i, bf16), gate = gated ? load(g->x, gates + i, bf16) : 1;
        float power;
        store(g->y, start + i, x * probability(x, &power) * gate, bf16);
    }
}

INLINE void gelu_row_back(const Gelu *g, Py_ssize_t row, int gated, int bf16)
{
    const Py_ssize_t start = row * g->width, from = gated ? 2 * start : start, gates = from + g->width;
    for (Py_ssize_t i = 0; i < g->width; i++) {
        const float x = load(g->x, from + i, bf16), gate = gated ? load(g->x, gates + i, bf16) : 1;
        const float grad = load(g->grad, start + i, bf16);
        float power;
        const float less = probability(x, &power), density = 0.398942280f * power;
        store(g->y, from + i, grad * gate * (less + x * density), bf16);
        if (gated) store(g->y, gates + i, grad * x * less, bf16);
    }
}

/* Compute a row with constants in place of the variables, as loops without conditions are what compilers vectorize. */
INLINE void gelu_row_either(const Gelu *g, Py_ssize_t row, int bf16)
{
    if (g->grad && g->gated) gelu_row_back(g, row, 1, bf16);
    else if (g->grad) gelu_row_back(g, row, 0, bf16);
    else if (g->gated) gelu_row(g, row, 1, bf16);
    else gelu_row(g, row, 0, bf16);
}

/* The functions of several rows, for registers of a size. */
#define ROWS(SIZE, TARGET)                                                                                           \
    TARGET static void norm_rows_##SIZE(const Norm *n, Py_ssize_t row, Py_ssize_t stop, int bf16)                    \
    {                                                                                                                \
        for (; row < stop && bf16; row++) norm_row(n, row, 1);                                                       \
        for (; row < stop; row++) norm_row(n, row, 0);                                                               \
    }                                                                                                                \
    TARGET static void norm_rows_back_##SIZE(const NormBack *n, Py_ssize_t row, Py_ssize_t stop, float *sums,        \
                                             int bf16)                                                               \
    {                                                                                                                \
        for (; row < stop && bf16; row++) norm_row_back(n, row, sums, 1);                                            \
        for (; row < stop; row++) norm_row_back(n, row, sums, 0);                                                    \
    }                                                                                                                \
    TARGET static void gelu_rows_##SIZE(const Gelu *g, Py_ssize_t row, Py_ssize_t stop, int bf16)                    \
    {                                                                                                                \
        for (; row < stop && bf16; row++) gelu_row_either(g, row, 1);                                                \
        for (; row < stop; row++) gelu_row_either(g, row, 0);                                                        \
    }

typedef struct {
    void (*norm)(const Norm *, Py_ssize_t, Py_ssize_t, int);
    void (*norm_back)(const NormBack *, Py_ssize_t, Py_ssize_t, float *, int);
    void (*gelu)(const Gelu *, Py_ssize_t, Py_ssize_t, int);
} Rows;
#define NAMES(SIZE) {norm_rows_##SIZE, norm_rows_back_##SIZE, gelu_rows_##SIZE}

ROWS(0, )
ROWS(256, TARGET_256)
ROWS(512, TARGET_512)

static Rows rows_here(void)
{
    const int registers = registers_here();
    return registers == 512 ? (Rows)NAMES(512) : registers ? (Rows)NAMES(256) : (Rows)NAMES(0);
}

static Py_ssize_t least(Py_ssize_t a, Py_ssize_t b) { return a < b ? a : b; }

static void norm(const Norm *n, int bf16, int threads)
{
    const Rows here = rows_here();
    const Py_ssize_t chunks = (n->rows + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && n->rows * n->width >= LEAST)
    for (Py_ssize_t i = 0; i < chunks; i++) here.norm(n, i * CHUNK, least(n->rows, (i + 1) * CHUNK), bf16);
}

/* Return whether there was enough memory. */
static int norm_back(const NormBack *n, int bf16, int threads)
{
    const Rows here = rows_here();
    const Py_ssize_t chunks = (n->rows + CHUNK - 1) / CHUNK, each = 2 * n->width;
    float *const sums = calloc(chunks * each + 1, sizeof *sums);
    if (!sums) return 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && n->rows * n->width >= LEAST)
    for (Py_ssize_t i = 0; i < chunks; i++)
        here.norm_back(n, i * CHUNK, least(n->rows, (i + 1) * CHUNK), sums + i * each, bf16);
    memset(n->sums, 0, each * sizeof *n->sums);
    for (Py_ssize_t i = 0; i < chunks; i++)
        for (Py_ssize_t j = 0; j < each; j++) n->sums[j] += sums[i * each + j];
    free(sums);
    return 1;
}

static void gelu(const Gelu *g, int bf16, int threads)
{
    const Rows here = rows_here();
    const Py_ssize_t chunks = (g->rows + CHUNK - 1) / CHUNK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && g->rows * g->width >= LEAST)
    for (Py_ssize_t i = 0; i < chunks; i++) here.gelu(g, i * CHUNK, least(g->rows, (i + 1) * CHUNK), bf16);
}

static PyObject *py_norm(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t v[2 + NORM_FIELDS - 1];
    (void)self;
    if (!read_integers(arguments, count - 1, 2 + NORM_FIELDS - 1, v)) return NULL;
    const double epsilon = PyFloat_AsDouble(arguments[count - 1]);
    if (PyErr_Occurred()) return NULL;
    const Norm n = {(const void *)v[2], (const void *)v[3], (void *)v[4], (void *)v[5], (float *)v[6],
                    (const void *)v[7], (const void *)v[8], v[9], v[10], v[11], v[12], (float)epsilon};
    Py_BEGIN_ALLOW_THREADS
    norm(&n, (int)v[0], (int)v[1]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_norm_back(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t v[2 + NORM_BACK_FIELDS];
    (void)self;
    if (!read_integers(arguments, count, 2 + NORM_BACK_FIELDS, v)) return NULL;
    const NormBack n = {(const void *)v[2], (const void *)v[3], (const float *)v[4], (const void *)v[5], (void *)v[6],
                        (void *)v[7], (float *)v[8], v[9], v[10], v[11], v[12]};
    int enough;
    Py_BEGIN_ALLOW_THREADS
    enough = norm_back(&n, (int)v[0], (int)v[1]);
    Py_END_ALLOW_THREADS
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *py_gelu(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_ssize_t v[2 + GELU_FIELDS];
    (void)self;
    if (!read_integers(arguments, count, 2 + GELU_FIELDS, v)) return NULL;
    const Gelu g = {(const void *)v[2], (const void *)v[3], (void *)v[4], v[5], v[6], (int)v[7]};
    Py_BEGIN_ALLOW_THREADS
    gelu(&g, (int)v[0], (int)v[1]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"norm", (PyCFunction)(void (*)(void))py_norm, METH_FASTCALL,
     "norm(whether bf16, threads, *norm): the fields of a Norm."},
    {"norm_back", (PyCFunction)(void (*)(void))py_norm_back, METH_FASTCALL,
     "norm_back(whether bf16, threads, *norm): the fields of a NormBack."},
    {"gelu", (PyCFunction)(void (*)(void))py_gelu, METH_FASTCALL,
     "gelu(whether bf16, threads, *gelu): the fields of a Gelu."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_rows", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void) { return PyModule_Create(&module); }
