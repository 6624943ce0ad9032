/* Attention by products in panels, and its gradient.

   The keys and values of a head and a sequence are copied into panels, so that scores and outputs are products like the
   others. The rows that the thread reads next are fetched meanwhile, as they lie far apart. The backward pass computes
   the probabilities again, and the same numbers at random, as FlashAttention does (Dao 2023, algorithm 2), so that
   nothing of the size of the scores is stored. */

#pragma once

#include "_products.h"

#define QUERIES 36 /* rows of scores at a time; with tiles TALL_TILES */

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
    const uint8_t *needed; /* (rows): whether the output of a token is; NULL: of all */
} Attention;
#define ATTENTION_FIELDS 16
enum { QUERY, KEY, VALUE }; /* the parts of a row of qkv */

/* The gradient of qkv, (rows, 3 * heads * size), given `grad`, that of y. */
typedef struct {
    Attention of; /* with what has been computed */
    const void *grad;
    void *grad_qkv;
} Gradient;

#if defined(__x86_64__) && defined(__GNUC__)

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
    for (Py_ssize_t next = 0; next < length;) {
        Py_ssize_t rows = 0, at[QUERIES];
        for (; next < length && rows < most; next++)
            if (!a->needed || a->needed[start + next]) at[rows++] = next;
        if (!rows) break;
        for (Py_ssize_t i = 0; i < rows; i++)
            read_part(queries + i * size, a, bits, start, at[i], QUERY, head, ahead);
        const Reach reach = reach_of(a, length, at[0], at[rows - 1] - at[0] + 1);
        multiply_all(&(Product){.x = queries, .panels = (char *)keys + reach.first * size * bytes,
                                .apart = size * WIDE, .y = scores, .rows = rows, .stride = size * sizeof(float) / bytes,
                                .step = sizeof(float) / bytes, .width = size, .outputs = reach.count}, bits);
        float factors[QUERIES];
        for (Py_ssize_t i = 0; i < rows; i++) {
            float *const x = scores + i * reach.count, highest;
            const Py_ssize_t query = start + at[i];
            Py_ssize_t from, to;
            limits(a, length, reach, at[i], &from, &to);
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
            write_row(a->y, (start + at[i]) * width + head * size, y + i * size, size, bits);
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

/* Attention, or its gradient, that is computed in tasks, with memory for each thread, which stays in its cache. */
typedef struct {
    const Gradient *g;
    int back, bits;
    Py_ssize_t parts, size; /* number of tasks, and floats that each thread needs besides */
    float *scratch;
} Heads;

/* Compute a share of the heads of all sequences. */
static void attend_share(const void *about, Py_ssize_t part)
{
    const Heads *const h = about;
    const Attention *const a = &h->g->of;
    float *const scratch = h->scratch + this_thread() * h->size;
    for (Py_ssize_t task = part; task < a->sequences * a->heads; task += h->parts) {
        const Py_ssize_t sequence = task / a->heads, start = a->offsets[sequence], head = task % a->heads;
        const Py_ssize_t length = a->offsets[sequence + 1] - start, ahead = h->parts * a->size;
        if (h->back) attend_head_back(h->g, h->bits, start, length, head, ahead, scratch);
        else attend_head(a, h->bits, start, length, head, ahead, scratch);
    }
    if (h->bits == TILES) release_tiles();
}

/* Compute attention, or its gradient if `back`; return whether there was enough memory. */
static int attend(const Gradient *g, int back, int bits, Team team)
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
    const int several = work >= LEAST;
    const Py_ssize_t parts = several ? team.threads * (team.tasks ? EACH_THREAD : 1) : 1;
    Heads h = {g, back, bits, parts, back ? scratch_size_back(a, longest) : scratch_size(a, longest), NULL};
    if (!(h.scratch = reserve((several ? team.threads : 1) * h.size * sizeof *h.scratch))) return 0;
    share(team, several, parts, attend_share, &h);
    free(h.scratch);
    const Py_ssize_t row = (back ? 3 : 1) * a->heads * a->size * bytes_of(bits);
    const Py_ssize_t end = a->offsets[a->sequences];
    if (end < a->rows) memset((char *)(back ? g->grad_qkv : a->y) + end * row, 0, (a->rows - end) * row);
    return 1;
}

#else
static int attend(const Gradient *g, int back, int bits, Team team)
{
    return (void)g, (void)back, (void)bits, (void)team, 1;
}
#endif
