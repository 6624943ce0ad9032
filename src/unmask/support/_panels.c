/* Products of matrices for panels.py, which describes the layout of its arguments. Callers check all arguments.

   A product of few rows is bound by reading the weights, so panels are read in the order in which they are stored, the
   next one is fetched while one is used, and one panel of at most DEPTH columns of x stays in the first-level cache for
   all rows. With registers of 512 bits two panels are used at a time, as otherwise the loads of x would take as long as
   the sums. Sums of DEPTH products are added up at the end, which rounds less than one long sum. A row is computed in
   the same way whatever the other rows are. Goto and van de Geijn 2008 describe the principle.

   OpenMP's functions are those of the library that torch has loaded, so that there are no threads but torch's. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>

#define WIDE 16        /* columns of the output per panel: two registers of 256 bits, or one of 512 */
#define TALL 6         /* rows at a time: 12 of 16 registers hold sums */
#define TALL_512 12    /* with registers of 512 bits: 24 of 32 hold sums */
#define DEPTH 384      /* products per sum */
#define CHUNK 36864    /* numbers of x that stay in the second-level cache */
#define LEAST 524288.0 /* multiplications from which on several threads are used */

/* y = x weight^T + bias + onto, then GELU, then LayerNorm with `scale` and `shift`; what is NULL or 0 is left out */
typedef struct {
    const float *x, *panels, *bias, *onto;
    float *y;
    Py_ssize_t rows, width, outputs;
    int gelu;
    const float *scale, *shift;
    float epsilon;
} Product;
#define NUM_FIELDS 12
#define MOST 3 /* products per call */

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
        const float *x, Py_ssize_t width, const float *panel, Py_ssize_t apart, Py_ssize_t depth, const float *next, \
        Py_ssize_t skip, const float *bias, const float *onto, float *y, Py_ssize_t outputs)                         \
    {                                                                                                                \
        enum { LANES = BITS / 32 };                                                                                  \
        Vector##BITS sums[R][P];                                                                                     \
        EACH(R) EACH_PART(P) sums[r][part] = (Vector##BITS){0};                                                      \
        for (Py_ssize_t i = 0; i < depth; i++, panel += WIDE) {                                                      \
            Vector##BITS weights[P];                                                                                 \
            EACH_PART(P) weights[part] = *(const Vector##BITS *)(panel + part * apart);                              \
            if (!(i & skip)) {                                                                                       \
                for (int part = 0; part < P * LANES / WIDE; part++) __builtin_prefetch(next + part * apart);         \
                next += WIDE;                                                                                        \
            }                                                                                                        \
            EACH(R) {                                                                                                \
                const float value = x[r * width + i];                                                                \
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

typedef void (*Kernel)(const float *, Py_ssize_t, const float *, Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t,
                       const float *, const float *, float *, Py_ssize_t);
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

/* Normalize a row to mean 0 and variance 1, in place, and scale and shift it; `width` is a multiple of 8. */
__attribute__((target("avx2,fma"))) static void normalize(float *y, Py_ssize_t width, const Product *p)
{
    __m256 sums = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (Py_ssize_t i = 0; i < width; i += 8) sums = _mm256_add_ps(sums, _mm256_loadu_ps(y + i));
    const __m256 mean = _mm256_set1_ps(total(sums) / width);
    for (Py_ssize_t i = 0; i < width; i += 8) {
        const __m256 centered = _mm256_sub_ps(_mm256_loadu_ps(y + i), mean);
        squares = _mm256_fmadd_ps(centered, centered, squares);
    }
    const float variance = total(squares) / width;
    /* where it overflows, its root would be taken for infinity and the row for 0 */
    const __m256 scale = _mm256_set1_ps(variance <= FLT_MAX ? 1 / sqrtf(variance + p->epsilon) : NAN);
    for (Py_ssize_t i = 0; i < width; i += 8) {
        const __m256 normed = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(y + i), mean), scale);
        const __m256 shift = p->shift ? _mm256_loadu_ps(p->shift + i) : _mm256_setzero_ps();
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(normed, _mm256_loadu_ps(p->scale + i), shift));
    }
}

/* Return the bits of the widest registers that products can use here; 0: there are none. */
static int registers(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    return __builtin_cpu_supports("avx512f") ? 512 : 256;
}

/* Return the most rows of a kernel with registers of `bits`. */
static Py_ssize_t tallest(int bits) { return bits == 512 ? TALL_512 : TALL; }

/* Compute rows [top, top + count) of the output's columns from `column` on: one panel, with 512 bits one or two. */
static void multiply_panels(const Product *p, int bits, Py_ssize_t top, Py_ssize_t count, Py_ssize_t column, int panels)
{
    const Kernel *const kernels = bits == 512 ? panels512[panels - 1] : halves;
    const Py_ssize_t blocks = (count + tallest(bits) - 1) / tallest(bits);
    const Py_ssize_t apart = bits == 512 ? p->width * WIDE : WIDE / 2;
    /* the first `fetching` blocks fetch what follows, each its share: every `fetching`-th step lines of 64 bytes */
    const Py_ssize_t fetching = blocks >= 8 ? 8 : blocks >= 4 ? 4 : blocks >= 2 ? 2 : 1;
    for (Py_ssize_t from = 0; from < p->width; from += DEPTH) {
        const Py_ssize_t depth = p->width - from < DEPTH ? p->width - from : DEPTH;
        const float *panel = p->panels + column * p->width + from * WIDE;
        const float *next = panel + (from + depth < p->width ? depth : panels * p->width - from) * WIDE;
        for (Py_ssize_t block = 0; block < blocks; block++) {
            const Py_ssize_t row = top + count * block / blocks, stop = top + count * (block + 1) / blocks;
            float *y = p->y + row * p->outputs + column;
            const float *onto = from ? y : p->onto ? p->onto + row * p->outputs + column : NULL;
            const float *bias = from || !p->bias ? NULL : p->bias + column;
            kernels[stop - row](p->x + row * p->width + from, p->width, panel, apart, depth, next,
                                block < fetching ? fetching - 1 : PY_SSIZE_T_MAX, bias, onto, y, p->outputs);
            next += block < fetching ? depth / fetching * WIDE : 0;
        }
    }
    for (int part = 0; part < panels && p->gelu; part++)
        apply_gelu(p->y + top * p->outputs + column + part * WIDE, count, p->outputs);
}

static void multiply(const Product *p, int bits, int threads)
{
    const Py_ssize_t size = CHUNK / p->width < tallest(bits) ? tallest(bits) : CHUNK / p->width;
    const Py_ssize_t chunks = (p->rows + size - 1) / size, each = bits == 512 ? 2 : 1;
    const Py_ssize_t panels = p->outputs / WIDE, parts = (panels + each - 1) / each;
    const int several = threads > 1 && (double)p->rows * p->width * p->outputs >= LEAST;
#pragma omp parallel num_threads(threads) if (several)
    {
#pragma omp for schedule(static)
        for (Py_ssize_t task = 0; task < chunks * parts; task++) {
            const Py_ssize_t chunk = task / parts, first = task % parts * each, top = p->rows * chunk / chunks;
            const Py_ssize_t count = p->rows * (chunk + 1) / chunks - top;
            multiply_panels(p, bits, top, count, first * WIDE, first + each <= panels ? (int)each : 1);
        }
        if (p->scale) {
#pragma omp for schedule(static)
            for (Py_ssize_t row = 0; row < p->rows; row++) normalize(p->y + row * p->outputs, p->outputs, p);
        }
    }
}

#else
static int registers(void) { return 0; }
static void multiply(const Product *p, int bits, int threads) { (void)p, (void)bits, (void)threads; }
#endif

static PyObject *py_registers(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyLong_FromLong(registers());
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
        product[i] = (Product){(const float *)values[0], (const float *)values[1], (const float *)values[2],
                               (const float *)values[3], (float *)values[4], values[5], values[6], values[7],
                               (int)values[8], (const float *)values[9], (const float *)values[10],
                               (float)PyFloat_AsDouble(fields[NUM_FIELDS - 1])};
    }
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < products; i++) multiply(&product[i], bits, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"registers", py_registers, METH_NOARGS, "Return the bits of the registers that products can use; 0: none."},
    {"multiply", (PyCFunction)(void (*)(void))py_multiply, METH_FASTCALL,
     "multiply(registers, threads, *products): the fields of each Product, one after the other."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_panels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__panels(void) { return PyModule_Create(&module); }
