/* What _panels.c and _rows.c have in common: the numbers of their calls, and the random numbers of dropout. */

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Read integers, as many as there must be; return whether there are no others. */
static inline int read_integers(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t expected, Py_ssize_t *values)
{
    if (count != expected) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return 0;
    }
    for (Py_ssize_t i = 0; i < expected; i++) values[i] = PyLong_AsSsize_t(arguments[i]);
    return !PyErr_Occurred();
}

/* A row of random numbers: any of them by its place, so that there is no state, and a gradient finds the same. Compilers
   compute those of a row in whole registers. */
typedef struct {
    uint32_t first, second;
} Random;

static inline Random random_of(int64_t seed, int64_t row)
{
    /* SplitMix64 (Steele et al. 2014) */
    uint64_t z = (uint64_t)seed + (uint64_t)(row + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (Random){(uint32_t)z, (uint32_t)(z >> 32)};
}

/* Return whether what is in a column is kept, of which `dropped` of 2^32 are not. */
static inline int is_kept(Random random, int64_t column, int64_t dropped)
{
    /* the finalizer of MurmurHash3, with another number in the middle */
    uint32_t x = (uint32_t)column * 0x9E3779B1u + random.first;
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13) ^ random.second) * 0xC2B2AE35u;
    return (x ^ (x >> 16)) >= (uint32_t)dropped;
}

/* Return by what kept numbers are multiplied. */
static inline float scale_of(int64_t dropped) { return (float)(1 / (1 - (double)dropped / 4294967296.0)); }
