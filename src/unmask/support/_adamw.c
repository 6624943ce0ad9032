/* AdamW's step over all weights in one pass over memory, for adamw.py. Callers check all arguments.

   OpenMP's functions are those of the library that torch has loaded, so that there are no threads but torch's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_numbers.h"

#define LANES 16
#define CHUNK 4096  /* numbers whose squares are added up first, in float; a multiple of LANES */
#define LEAST 32768 /* numbers from which on several threads are used */

/* Weights, and what belongs to each of them; integers of the table that callers pass. */
typedef struct {
    int64_t weights, grads, first, second, copies, count, narrow; /* narrow: whether gradients are bf16 */
} Array;

typedef struct {
    float keep;                  /* the share of a weight that does not decay */
    float excess;                /* by which gradients are too large */
    float old_first, new_first;  /* the shares of the mean before, and of a gradient */
    float old_second, new_second;
    float rate, root, epsilon;   /* a weight loses rate * first / (sqrt(second) / root + epsilon) */
} Step;

INLINE void update(const Array *a, Py_ssize_t from, Py_ssize_t to, const Step *s, int bf16)
{
    float *const weights = (float *)(intptr_t)a->weights;
    float *const first = (float *)(intptr_t)a->first, *const second = (float *)(intptr_t)a->second;
    const void *const grads = (const void *)(intptr_t)a->grads;
    void *const copies = (void *)(intptr_t)a->copies;
#pragma omp simd
    for (Py_ssize_t i = from; i < to; i++) {
        const float grad = load(grads, i, bf16) / s->excess;
        const float mean = s->old_first * first[i] + s->new_first * grad;
        const float square = s->old_second * second[i] + s->new_second * (grad * grad);
        const float weight = weights[i] * s->keep - s->rate * mean / (sqrtf(square) / s->root + s->epsilon);
        first[i] = mean, second[i] = square, weights[i] = weight;
        store(copies, i, weight, 1);
    }
}

/* Return the sum of the squares of gradients. */
INLINE double squares(const Array *a, Py_ssize_t from, Py_ssize_t to, int bf16)
{
    const void *const grads = (const void *)(intptr_t)a->grads;
    double sum = 0;
    for (Py_ssize_t chunk = from; chunk < to; chunk += CHUNK) {
        const Py_ssize_t stop = chunk + CHUNK < to ? chunk + CHUNK : to;
        float sums[LANES] = {0};
        Py_ssize_t i = chunk;
        for (; i + LANES <= stop; i += LANES)
            for (int j = 0; j < LANES; j++) sums[j] += load(grads, i + j, bf16) * load(grads, i + j, bf16);
        for (; i < stop; i++) sums[0] += load(grads, i, bf16) * load(grads, i, bf16);
        for (int j = 0; j < LANES; j++) sum += sums[j];
    }
    return sum;
}

/* The functions of numbers [from, to) of an array, for registers of a size. */
#define NUMBERS(SIZE, TARGET)                                                                                        \
    TARGET static void update_##SIZE(const Array *a, Py_ssize_t from, Py_ssize_t to, const Step *s)                  \
    {                                                                                                                \
        if (a->narrow) update(a, from, to, s, 1);                                                                    \
        else update(a, from, to, s, 0);                                                                              \
    }                                                                                                                \
    TARGET static double squares_##SIZE(const Array *a, Py_ssize_t from, Py_ssize_t to)                              \
    {                                                                                                                \
        return a->narrow ? squares(a, from, to, 1) : squares(a, from, to, 0);                                        \
    }
NUMBERS(0, )
NUMBERS(256, TARGET_256)
NUMBERS(512, TARGET_512)

/* Return where the part of a thread begins, at a chunk; thread `threads` begins where the array ends. */
static Py_ssize_t part(const Array *a, int thread, int threads)
{
    return thread == threads ? a->count : (Py_ssize_t)(a->count / CHUNK * thread / threads) * CHUNK;
}

static int threads_for(const Array *arrays, Py_ssize_t number, int threads)
{
    int64_t count = 0;
    for (Py_ssize_t i = 0; i < number; i++) count += arrays[i].count;
    return count >= LEAST ? threads : 1;
}

static void step(const Array *arrays, Py_ssize_t number, const Step *s, int threads)
{
    const int registers = registers_here();
    threads = threads_for(arrays, number, threads);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int thread = 0; thread < threads; thread++)
        for (const Array *a = arrays; a < arrays + number; a++) {
            const Py_ssize_t from = part(a, thread, threads), to = part(a, thread + 1, threads);
            if (registers == 512) update_512(a, from, to, s);
            else if (registers) update_256(a, from, to, s);
            else update_0(a, from, to, s);
        }
}

static double total(const Array *arrays, Py_ssize_t number, int threads)
{
    const int registers = registers_here();
    double sum = 0;
    threads = threads_for(arrays, number, threads);
#pragma omp parallel for schedule(static) num_threads(threads) reduction(+ : sum) if (threads > 1)
    for (int thread = 0; thread < threads; thread++)
        for (const Array *a = arrays; a < arrays + number; a++) {
            const Py_ssize_t from = part(a, thread, threads), to = part(a, thread + 1, threads);
            sum += registers == 512 ? squares_512(a, from, to)
                 : registers        ? squares_256(a, from, to)
                                    : squares_0(a, from, to);
        }
    return sum;
}

/* Read the number of threads and the table; return the arrays, or NULL. */
static const Array *read_table(PyObject *const *arguments, Py_ssize_t *number, int *threads)
{
    char *bytes;
    Py_ssize_t size;
    *threads = (int)PyLong_AsLong(arguments[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(arguments[1], &bytes, &size)) return NULL;
    *number = size / (Py_ssize_t)sizeof(Array);
    if (*number * (Py_ssize_t)sizeof(Array) == size) return (const Array *)bytes;
    PyErr_SetString(PyExc_TypeError, "the table is not one of arrays");
    return NULL;
}

#define NUMBERS_OF_STEP (sizeof(Step) / sizeof(float))

static PyObject *py_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    int threads;
    Py_ssize_t number;
    float numbers[NUMBERS_OF_STEP];
    Step s;
    (void)self;
    if (count != 2 + NUMBERS_OF_STEP) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return NULL;
    }
    const Array *const arrays = read_table(arguments, &number, &threads);
    if (!arrays) return NULL;
    for (size_t i = 0; i < NUMBERS_OF_STEP; i++) numbers[i] = (float)PyFloat_AsDouble(arguments[2 + i]);
    if (PyErr_Occurred()) return NULL;
    memcpy(&s, numbers, sizeof s);
    Py_BEGIN_ALLOW_THREADS
    step(arrays, number, &s, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_squares(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    int threads;
    Py_ssize_t number;
    double sum;
    (void)self;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return NULL;
    }
    const Array *const arrays = read_table(arguments, &number, &threads);
    if (!arrays) return NULL;
    Py_BEGIN_ALLOW_THREADS
    sum = total(arrays, number, threads);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(sum);
}

static PyMethodDef methods[] = {
    {"step", (PyCFunction)(void (*)(void))py_step, METH_FASTCALL,
     "step(threads, table, *step): the fields of Arrays, and of a Step."},
    {"squares", (PyCFunction)(void (*)(void))py_squares, METH_FASTCALL,
     "squares(threads, table): the sum of the squares of the gradients of Arrays."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_adamw", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__adamw(void) { return PyModule_Create(&module); }
