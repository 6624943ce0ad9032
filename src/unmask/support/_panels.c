/* Products of matrices, attention and layers for panels.py, which describes the layout of its arguments and checks them. */

#include "_attention.h"

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
#define PRODUCT_FIELDS 8 /* panels, bias, width, outputs, bytes, gelu, scale, shift */
#define LAYER_FIELDS (ATTENTION_FIELDS + 1 + 2 + 4 * PRODUCT_FIELDS)
#define LAYER_NORMS 3 /* begin, out, down */

#if defined(__x86_64__) && defined(__GNUC__)
/* Compute a product of a layer, whose rows are as wide as what is multiplied; return whether there was enough memory. */
static int multiply_rows(Product p, const void *x, Py_ssize_t stride, Py_ssize_t rows, const void *onto, void *y,
                          void *normed, int bits, Team team)
{
    p.x = x, p.stride = stride, p.rows = rows, p.onto = onto, p.y = y, p.normed = normed;
    return multiply(&p, bits, team);
}

/* Compute keys and values of all rows of x, and queries of the selected ones; for these there are `some` and `queries`,
   (count) rows each, and for the others `rest`. Return whether there was enough memory. */
static int multiply_selected(const Layer *l, const char *x, char *qkv, char *some, char *queries, char *rest, int bits,
                             Team team)
{
    const Py_ssize_t width = l->out.outputs, row = width * bytes_of(bits), rows = l->attention.rows;
    Product of_queries = l->qkv, others = l->qkv;
    of_queries.outputs = width, others.outputs = 2 * width;
    others.panels = (const char *)others.panels + width / WIDE * others.apart * (others.bytes ? 1 : bytes_of(bits));
    if (others.bias) others.bias = (const char *)others.bias + row;
    for (Py_ssize_t i = 0; i < l->count; i++) memcpy(some + i * row, x + l->selected[i] * row, row);
    if (!multiply_rows(of_queries, some, width, l->count, NULL, queries, NULL, bits, team)) return 0;
    if (!multiply_rows(others, x, width, rows, NULL, rest, NULL, bits, team)) return 0;
    for (Py_ssize_t i = 0; i < rows; i++) memcpy(qkv + (3 * i + 1) * row, rest + 2 * i * row, 2 * row);
    for (Py_ssize_t i = 0; i < l->count; i++) memcpy(qkv + 3 * l->selected[i] * row, queries + i * row, row);
    return 1;
}

/* Return whether there was enough memory. */
static int compute_layer(const Layer *l, int bits, Team team)
{
    Attention a = l->attention;
    const Py_ssize_t width = a.heads * a.size, bytes = bytes_of(bits), row = width * bytes, inner = l->up.outputs;
    const int begins = l->begin.scale != NULL, few = l->selected && 2 * l->count <= a.rows;
    const Py_ssize_t of_all = a.rows * row * (begins ? 5 : 4), of_some = l->count * (4 * row + inner * bytes);
    char *const scratch = reserve(of_all + of_some + (few ? a.rows * (2 * row + 1) : 0) + 1);
    if (!scratch) return 0;
    char *const qkv = scratch, *const read = qkv + 3 * a.rows * row, *const normed = read + a.rows * row;
    char *const some = scratch + of_all, *const onto = some + l->count * row, *const z = onto + l->count * row;
    char *const unit = z + l->count * row, *const between = unit + l->count * row;
    char *const rest = some + of_some, *const needed = rest + 2 * a.rows * row;
    const char *const x = begins ? normed : l->x;
    if (begins) {
        Product begin = l->begin;
        begin.y = (void *)l->x, begin.normed = normed, begin.rows = a.rows, begin.outputs = width;
        share(team, a.rows * width >= LEAST / DEPTH, a.rows, finish_task, &(Shares){.p = &begin, .bits = bits});
    }
    int enough = few ? multiply_selected(l, x, qkv, some, z, rest, bits, team)
                     : multiply_rows(l->qkv, x, width, a.rows, NULL, qkv, NULL, bits, team);
    if (few) {
        memset(needed, 0, a.rows);
        for (Py_ssize_t i = 0; i < l->count; i++) needed[l->selected[i]] = 1;
        a.needed = (const uint8_t *)needed;
    }
    a.qkv = qkv, a.y = read;
    enough = enough && attend(&(Gradient){.of = a}, 0, bits, team);
    for (Py_ssize_t i = 0; l->selected && i < l->count; i++) {
        memcpy(some + i * row, read + l->selected[i] * row, row);
        memcpy(onto + i * row, (const char *)l->x + l->selected[i] * row, row);
    }
    void *const input = l->pre_norm ? unit : z;
    enough = enough && multiply_rows(l->out, l->selected ? some : read, width, l->count, l->selected ? onto : l->x, z,
                                     input, bits, team);
    enough = enough && multiply_rows(l->up, input, width, l->count, NULL, between, NULL, bits, team);
    enough = enough && multiply_rows(l->down, between, inner, l->count, z, l->y, l->y, bits, team);
    free(scratch);
    return enough;
}

#else
static int compute_layer(const Layer *l, int bits, Team team) { return (void)l, (void)bits, (void)team, 1; }
#endif

/* Compute layers, one after the other, with helpers; return whether there was enough memory. */
static int compute_layers(const Layer *layers, Py_ssize_t number, int bits, int threads)
{
    const Py_ssize_t rows = layers[0].attention.rows;
    const int helped = threads > 1 && (is_large(&layers[0].qkv, rows) || is_large(&layers[0].up, rows));
    Tasks tasks = {0};
    const Team team = {helped ? threads : 1, helped ? &tasks : NULL};
    int enough = 1;
#pragma omp parallel num_threads(threads) if (helped)
    {
#pragma omp master
        {
            for (Py_ssize_t i = 0; enough && i < number; i++) enough = compute_layer(&layers[i], bits, team);
            atomic_store(&tasks.done, 1);
        }
        help(&tasks);
    }
    return enough;
}

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

static PyObject *py_multiplies_bytes(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
    return PyBool_FromLong(multiplies_bytes());
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
    const int bits = (int)PyLong_AsLong(arguments[0]);
    const Team team = {(int)PyLong_AsLong(arguments[1]), NULL};
    for (Py_ssize_t i = 0; i < products; i++) {
        PyObject *const *fields = arguments + 2 + i * NUM_FIELDS;
        Py_ssize_t values[NUM_FIELDS - 1];
        for (int j = 0; j < NUM_FIELDS - 1; j++) values[j] = PyLong_AsSsize_t(fields[j]);
        product[i] = (Product){(const void *)values[0], (const void *)values[1], (const void *)values[2],
                               (const void *)values[3], (void *)values[4], (void *)values[5], values[6], values[7],
                               values[8], values[9], (int)values[10], (int)values[11], (const void *)values[12],
                               (const void *)values[13], (float)PyFloat_AsDouble(fields[NUM_FIELDS - 1]),
                               apart_of(values[8], (int)values[10]), 1};
    }
    if (PyErr_Occurred()) return NULL;
    int enough = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; enough && i < products; i++) enough = multiply(&product[i], bits, team);
    Py_END_ALLOW_THREADS
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Set an attention to its fields; return whether its sequences fit. */
static int read_attention(const Py_ssize_t *v, Attention *attention)
{
    const Attention a = {(const void *)v[0], (void *)v[1], (const int32_t *)v[2], v[3], v[4], v[5], v[6], v[7],
                         (const float *)v[8], (const float *)v[9], (int)v[10], v[11], v[12], (float *)v[13], v[14],
                         v[15], NULL};
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
    enough = attend(&gradient, back, (int)values[0], (Team){(int)values[1], NULL});
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
                     .bytes = (int)v[4], .gelu = (int)v[5], .scale = (const void *)v[6], .shift = (const void *)v[7],
                     .epsilon = (float)epsilon, .apart = apart_of(v[2], (int)v[4]), .step = 1};
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

#define BEFORE_LAYERS 7 /* bits, threads, x, between, y, selected, count; then those of each layer */
#define EACH_LAYER (LAYER_FIELDS + LAYER_NORMS)

/* Set layers to their fields; return whether they fit. */
static int read_layers(PyObject *const *arguments, const Py_ssize_t *v, Layer *layers, Py_ssize_t number)
{
    for (Py_ssize_t i = 0; i < number; i++) {
        Layer *const layer = &layers[i];
        const int last = i == number - 1;
        if (!read_layer(arguments + BEFORE_LAYERS + i * EACH_LAYER, layer)) return 0;
        layer->x = (const void *)(i ? v[3] : v[2]), layer->y = (void *)(last ? v[4] : v[3]);
        layer->selected = last ? (const int64_t *)v[5] : NULL;
        layer->count = last ? v[6] : layer->attention.rows;
    }
    const Layer *const last = &layers[number - 1];
    for (Py_ssize_t i = 0; last->selected && i < last->count; i++)
        if (last->selected[i] < 0 || last->selected[i] >= last->attention.rows) {
            PyErr_SetString(PyExc_IndexError, "a row that is selected is not there");
            return 0;
        }
    return 1;
}

static PyObject *py_layers(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Py_ssize_t number = (count - BEFORE_LAYERS) / EACH_LAYER;
    Py_ssize_t v[BEFORE_LAYERS];
    (void)self;
    if (number < 1) {
        PyErr_SetString(PyExc_TypeError, "layers: wrong number of arguments");
        return NULL;
    }
    if (!read_integers(arguments, count - number * EACH_LAYER, BEFORE_LAYERS, v)) return NULL;
    Layer *const layers = calloc(number, sizeof *layers);
    if (!layers) return PyErr_NoMemory();
    const int fit = read_layers(arguments, v, layers, number);
    int enough = 1;
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        enough = compute_layers(layers, number, (int)v[0], (int)v[1]);
        Py_END_ALLOW_THREADS
    }
    free(layers);
    if (!fit) return NULL;
    if (!enough) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"registers", py_registers, METH_NOARGS, "Return the bits of the registers that products can use; 0: none."},
    {"multiplies_bf16", py_multiplies_bf16, METH_NOARGS, "Return whether products can be in bf16."},
    {"multiplies_bytes", py_multiplies_bytes, METH_NOARGS, "Return whether products can be of bytes."},
    {"has_tiles", py_has_tiles, METH_NOARGS, "Return whether products in bf16 can use tiles."},
    {"pack", (PyCFunction)(void (*)(void))py_pack, METH_FASTCALL,
     "pack(threads, x, rows, columns, y, order): write a matrix of bf16 in an order."},
    {"multiply", (PyCFunction)(void (*)(void))py_multiply, METH_FASTCALL,
     "multiply(registers, or 16 or 8 for bf16, threads, *products): the fields of each Product, one after the other."},
    {"attend", (PyCFunction)(void (*)(void))py_attend, METH_FASTCALL,
     "attend(registers, or 16 or 8 for bf16, threads, *attention): the fields of an Attention."},
    {"attend_back", (PyCFunction)(void (*)(void))py_attend_back, METH_FASTCALL,
     "attend_back(registers, or 16 or 8 for bf16, threads, *attention, grad, grad_qkv): the fields of a Gradient."},
    {"layers", (PyCFunction)(void (*)(void))py_layers, METH_FASTCALL,
     "layers(registers, or 16 or 8 for bf16, threads, x, between, y, rows or 0, number of rows, *layers): for each, the fields "
     "of an Attention and a Layer, and the norms' epsilons. `between` is for what a layer returns to the next one."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_panels", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__panels(void) { return PyModule_Create(&module); }
