/* What the two files of the kernel share: scores of fragments (kernel.c) and keys of nodes (keys.c). */
#ifndef SEATRIAL_KERNEL_H
#define SEATRIAL_KERNEL_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

#define MAX_CARDS 128 /* beyond this NumPy splits a sum in another order */

/* A contiguous buffer of float64 or int64; -1 with an exception where `object` has another type. */
int take(PyObject *object, Py_buffer *buffer, int floats, int flags);

int is_scorer(PyObject *object);

/* The number of shapes of a `Scorer`. */
int64_t scorer_shapes(PyObject *scorer);

/* Fills `scores` [shape] of one node; `cards` is a tuple. -1 with an exception where the tables lack the node. */
int score_of_node(PyObject *scorer, int64_t model, int64_t cpu, int64_t memory, PyObject *cards, int64_t *scores);

/* Adds the types of keys.c to the module; -1 with an exception. */
int add_keys(PyObject *module);

#endif
