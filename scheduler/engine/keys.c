/* Keys of one node for all classes in one call (framework/compiled_keys.py): filters and scores of plugins whose results
 * are sums, comparisons and divisions. Python defines the results: `filter_classes_batch` and `score_classes_batch` of
 * the plugins, and `ScoreMatrix._exact`, which adds them.
 *
 * A `Part` is one plugin's filter or score for all classes, a `Keys` the parts of a score matrix with its arrays. All
 * arrays are int64 with the class axis last, [room]; a class that a plugin does not concern has a need that every node
 * meets, or the factor 0.
 */
#include "kernel.h"
#include <string.h>

#define REFUSED (-((int64_t)1 << 58)) /* signatures.REFUSED */
#define MAX_NODE_SCORE 100
#define MAX_ARRAYS 6
#define MAX_NUMBERS 8
#define EXACT ((int64_t)1 << 53)

enum { ARRAY, AMOUNTS, CARDS, UTILIZATION, BALANCE, DEVICES, FRAGMENTS, KINDS };
enum { RAISED = 1, OPENED = 2 }; /* what `Keys.update` returns */

typedef struct {
    PyObject_HEAD
    int kind, held;
    Py_buffer arrays[MAX_ARRAYS];
    int64_t numbers[MAX_NUMBERS];
    PyObject *names; /* of resources */
} Part;

/* Arrays of each kind of part, then numbers. ARRAY: nothing, or where its values are kept [class, node]. */
enum { COLUMNS, NEEDS };                                  /* AMOUNTS: [column], [column, class] */
enum { SHARES, COUNTS };                                  /* CARDS: what each card must have free [name, class], cards */
enum { REQUESTS, FACTOR, HIGHEST, DIVISOR, RAW };         /* scores: [resource, class], weights as shifted in a key; and for
                                                             DEVICES the largest raw scores and raw scores [class, node] */
enum { WEIGHED, KEPT };                                   /* FRAGMENTS: weights as shifted, scores [class, node] */
enum { MOST, WEIGHTS };                                   /* numbers of UTILIZATION and DEVICES: weights by resource */
enum { MONOTONE = 5 };                                    /* DEVICES */

typedef struct {
    PyObject_HEAD
    Py_buffer base, key;     /* [node, class] and [class, node] */
    int held;
    PyObject *parts, *allocatable_name, *requested_name, *nonzero_name;
    int64_t room, nodes, cpu, memory; /* columns of native resources */
    int64_t *total, *values;
    int32_t *fitting;
} Keys;

typedef struct {
    PyObject *allocatable, *requested, *nonzero;
    int64_t row;
    int falling;
} Node;

static PyTypeObject *part_type;

static inline const int64_t *numbers_of(const Part *part, int array) { return part->arrays[array].buf; }
static inline int64_t length_of(const Part *part, int array) { return part->arrays[array].len / 8; }
static inline int64_t positive(int64_t value) { return value > 0 ? value : 0; }

/* Rounded down, as in Python. A division of doubles is exact below 2^53, and several times as fast. */
static inline int64_t quotient(int64_t one, int64_t other)
{
    if (one >= 0 && one < EXACT && other < EXACT)
        return (int64_t)((double)one / (double)other);
    int64_t found = one / other;
    return found - (one % other != 0 && (one < 0) != (other < 0));
}

/* An entry of a list of amounts; 0 beyond its end. */
static int64_t amount_of(PyObject *list, int64_t column)
{
    if (column >= PyList_Size(list))
        return 0;
    return PyLong_AsLongLong(PyList_GetItem(list, column));
}

/* An entry of a dictionary of amounts; 0 where it has none. */
static int64_t named(PyObject *amounts, PyObject *name)
{
    PyObject *found = PyDict_GetItemWithError(amounts, name);
    return found ? PyLong_AsLongLong(found) : 0;
}

/* NodeResourcesFit.filter_classes_batch */
static void add_amounts(const Part *part, Keys *keys, const Node *node)
{
    const int64_t *columns = numbers_of(part, COLUMNS), *needs = numbers_of(part, NEEDS), room = keys->room;
    int64_t *short_of = keys->values;
    memset(short_of, 0, (size_t)room * sizeof(int64_t));
    for (int64_t i = 0; i < length_of(part, COLUMNS); i++, needs += room) {
        int64_t left = amount_of(node->allocatable, columns[i]) - amount_of(node->requested, columns[i]);
        for (int64_t class_ = 0; class_ < room; class_++)
            short_of[class_] |= needs[class_] > left;
    }
    for (int64_t class_ = 0; class_ < room; class_++)
        keys->total[class_] += short_of[class_] ? REFUSED : 0;
}

/* DeviceShare.filter_classes_batch; `argument`: free amounts of all slots, and the slots that are cards; None: all pass. */
static void add_cards(const Part *part, Keys *keys, PyObject *argument)
{
    const int64_t *shares = numbers_of(part, SHARES), *counts = numbers_of(part, COUNTS), room = keys->room;
    if (argument == Py_None)
        return;
    PyObject *frees = PyTuple_GetItem(argument, 0), *slots = PyTuple_GetItem(argument, 1);
    if (!frees || !slots || !PyTuple_Check(frees) || !PyList_Check(slots)) {
        PyErr_SetString(PyExc_TypeError, "expected free amounts and slots");
        return;
    }
    if (PyList_Size(slots) > MAX_CARDS) {
        PyErr_SetString(PyExc_ValueError, "too many cards");
        return;
    }
    int64_t cards = PyList_Size(slots), names = PyTuple_Size(part->names);
    int32_t *fitting = keys->fitting;
    memset(fitting, 0, (size_t)room * sizeof(int32_t));
    PyObject *before[MAX_CARDS]; /* cards with equal free amounts mostly share one dictionary */
    int32_t alike[MAX_CARDS];
    int64_t distinct = 0;
    for (int64_t card = 0; card < cards && !PyErr_Occurred(); card++) {
        PyObject *free_amounts = PyTuple_GetItem(frees, PyLong_AsLongLong(PyList_GetItem(slots, card)));
        if (!free_amounts || !PyDict_Check(free_amounts)) {
            PyErr_SetString(PyExc_TypeError, "expected a dictionary of free amounts");
            return;
        }
        int64_t same = 0;
        while (same < distinct && before[same] != free_amounts)
            same++;
        if (same == distinct) {
            before[distinct] = free_amounts;
            alike[distinct++] = 0;
        }
        alike[same]++;
    }
    for (int64_t one = 0; one < distinct && !PyErr_Occurred(); one++) {
        int64_t have[MAX_NUMBERS];
        for (int64_t name = 0; name < names; name++)
            have[name] = named(before[one], PyTuple_GetItem(part->names, name));
        for (int64_t class_ = 0; class_ < room; class_++) {
            int suits = 1;
            for (int64_t name = 0; name < names; name++)
                suits &= have[name] >= shares[name * room + class_];
            fitting[class_] += suits ? alike[one] : 0;
        }
    }
    for (int64_t class_ = 0; class_ < room; class_++)
        keys->total[class_] += fitting[class_] < counts[class_] ? REFUSED : 0;
}

/* NodeResourcesFit.score_classes_batch for CPU and memory, LeastAllocated and MostAllocated */
static void add_utilization(const Part *part, Keys *keys, const Node *node)
{
    const int64_t *factor = numbers_of(part, FACTOR), room = keys->room, columns[] = {keys->cpu, keys->memory};
    int64_t *score = keys->values, weights = 0;
    memset(score, 0, (size_t)room * sizeof(int64_t));
    for (int resource = 0; resource < 2; resource++) {
        const int64_t *request = numbers_of(part, REQUESTS) + resource * room;
        int64_t capacity = amount_of(node->allocatable, columns[resource]), weight = part->numbers[WEIGHTS + resource];
        int64_t used = PyLong_AsLongLong(PyTuple_GetItem(node->nonzero, resource));
        if (!capacity)
            continue;
        weights += weight;
        for (int64_t class_ = 0; class_ < room; class_++) {
            int64_t left = positive(capacity - used - request[class_]);
            score[class_] += weight * quotient((part->numbers[MOST] ? capacity - left : left) * MAX_NODE_SCORE, capacity);
        }
    }
    for (int64_t class_ = 0; weights && class_ < room; class_++)
        keys->total[class_] += quotient(score[class_], weights) * factor[class_];
}

/* NodeResourcesBalancedAllocation.score_classes_batch for CPU and memory */
static void add_balance(const Part *part, Keys *keys, const Node *node)
{
    const int64_t *factor = numbers_of(part, FACTOR), *request = numbers_of(part, REQUESTS), room = keys->room;
    int64_t capacity[] = {amount_of(node->allocatable, keys->cpu), amount_of(node->allocatable, keys->memory)};
    int64_t used[] = {amount_of(node->requested, keys->cpu), amount_of(node->requested, keys->memory)};
    int both = capacity[0] && capacity[1];
    for (int64_t class_ = 0; class_ < room; class_++) {
        int64_t score = MAX_NODE_SCORE;
        if (both) {
            double cpu = (double)(request[class_] + used[0]) / (double)capacity[0];
            double memory = (double)(request[room + class_] + used[1]) / (double)capacity[1];
            cpu = cpu < 1.0 ? cpu : 1.0;
            memory = memory < 1.0 ? memory : 1.0;
            double apart = cpu > memory ? cpu - memory : memory - cpu;
            score = (int64_t)((1.0 - apart / 2) * MAX_NODE_SCORE);
        }
        keys->total[class_] += score * factor[class_];
    }
}

/* DeviceShare.score_classes_batch, normalised; `argument`: total and free amounts of all cards, None without cards.
 * Returns whether a raw score rose above the largest of its class. */
static int add_devices(const Part *part, Keys *keys, const Node *node, PyObject *argument)
{
    const int64_t *factor = numbers_of(part, FACTOR), *highest = numbers_of(part, HIGHEST);
    const int64_t *divisor = numbers_of(part, DIVISOR), room = keys->room, names = PyTuple_Size(part->names);
    int64_t *kept = part->arrays[RAW].buf, *score = keys->values, weights = 0;
    memset(score, 0, (size_t)room * sizeof(int64_t));
    if (argument != Py_None) {
        PyObject *totals = PyTuple_GetItem(argument, 0), *frees = PyTuple_GetItem(argument, 1);
        if (!totals || !frees || !PyDict_Check(totals) || !PyDict_Check(frees)) {
            PyErr_SetString(PyExc_TypeError, "expected total and free amounts");
            return 0;
        }
        for (int64_t name = 0; name < names; name++) {
            PyObject *own = PyTuple_GetItem(part->names, name);
            const int64_t *request = numbers_of(part, REQUESTS) + name * room;
            int64_t total = named(totals, own), left_before = named(frees, own), weight = part->numbers[WEIGHTS + name];
            if (total > 0)
                weights += weight;
            if (!weight)
                continue;
            int64_t by = total > 1 ? total : 1;
            for (int64_t class_ = 0; class_ < room; class_++) {
                int64_t left = positive(left_before - request[class_]);
                score[class_] += weight * quotient((part->numbers[MOST] ? total - left : left) * MAX_NODE_SCORE, by);
            }
        }
    }
    int rose = 0;
    weights = weights > 1 ? weights : 1;
    for (int64_t class_ = 0; class_ < room; class_++) {
        int64_t raw = factor[class_] ? quotient(score[class_], weights) : 0;
        rose |= raw > highest[class_];
        kept[class_ * keys->nodes + node->row] = raw;
        keys->total[class_] += quotient(raw * MAX_NODE_SCORE, divisor[class_]) * factor[class_];
    }
    return rose && !(node->falling && part->numbers[MONOTONE]);
}

/* DeviceFragmentation.score_classes_batch; `argument`: scorer, the shape of each class of the plugin, these classes, and
 * model, CPU, memory and cards of the node; without the last four the node has no cards and all scores are neutral. */
static void add_fragments(const Part *part, Keys *keys, const Node *node, PyObject *argument)
{
    const int64_t *factor = numbers_of(part, WEIGHED);
    int64_t *kept = part->arrays[KEPT].buf, *scores = NULL, *value = keys->values;
    memset(value, 0, (size_t)keys->room * sizeof(int64_t));
    for (int64_t class_ = 0; argument == Py_None && class_ < keys->room; class_++)
        value[class_] = part->numbers[0];
    if (argument != Py_None) {
        PyObject *scorer, *of_shape, *of_class, *cards;
        long long model, cpu, memory;
        Py_buffer back, classes;
        if (!PyArg_ParseTuple(argument, "OOOLLLO!", &scorer, &of_shape, &of_class, &model, &cpu, &memory, &PyTuple_Type,
                              &cards))
            return;
        if (!is_scorer(scorer)) {
            PyErr_SetString(PyExc_TypeError, "expected a Scorer");
            return;
        }
        if (take(of_shape, &back, 0, 0) < 0)
            return;
        if (take(of_class, &classes, 0, 0) < 0) {
            PyBuffer_Release(&back);
            return;
        }
        int64_t shapes = scorer_shapes(scorer), count = back.len / 8;
        scores = PyMem_Malloc((size_t)(shapes + 1) * sizeof(int64_t));
        int wrong = classes.len != back.len;
        if (!scores)
            PyErr_NoMemory();
        else if (!wrong && score_of_node(scorer, model, cpu, memory, cards, scores) == 0)
            for (int64_t i = 0; i < count && !wrong; i++) {
                int64_t shape = ((const int64_t *)back.buf)[i], class_ = ((const int64_t *)classes.buf)[i];
                wrong = shape < 0 || shape >= shapes || class_ < 0 || class_ >= keys->room;
                if (!wrong)
                    value[class_] = scores[shape];
            }
        if (wrong)
            PyErr_SetString(PyExc_IndexError, "a class or its shape is outside of the arrays");
        PyMem_Free(scores);
        PyBuffer_Release(&back);
        PyBuffer_Release(&classes);
    }
    for (int64_t class_ = 0; class_ < keys->room; class_++) {
        int64_t counted = value[class_] * factor[class_];
        kept[class_ * keys->nodes + node->row] = counted;
        keys->total[class_] += counted;
    }
}

/* Values that Python computed, [class]. */
static void add_array(const Part *part, Keys *keys, const Node *node, PyObject *argument)
{
    Py_buffer values;
    if (take(argument, &values, 0, 0) < 0)
        return;
    if (values.len != keys->room * 8) {
        PyErr_SetString(PyExc_ValueError, "expected one number for each class");
    } else {
        for (int64_t class_ = 0; class_ < keys->room; class_++) {
            int64_t value = ((const int64_t *)values.buf)[class_];
            keys->total[class_] += value;
            if (part->held)
                ((int64_t *)part->arrays[0].buf)[class_ * keys->nodes + node->row] = value;
        }
    }
    PyBuffer_Release(&values);
}

/* update(row, node, falling, arguments): the new keys of a node for all classes; an argument for each part.
 *
 * `falling`: raw scores of parts that are monotone did not rise. Returns RAISED where a raw score rose above the largest
 * of some class, and OPENED where a class finds the node feasible that did not before.
 */
static PyObject *keys_update(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Keys *self = (Keys *)object;
    Node node = {NULL, NULL, NULL, 0, 0};
    PyObject *result = NULL;
    if (given != 4 || !PyList_Check(args[3]) || PyList_Size(args[3]) != PyTuple_Size(self->parts)) {
        PyErr_SetString(PyExc_TypeError, "expected row, node, falling and a list with an argument for each part");
        return NULL;
    }
    node.row = PyLong_AsLongLong(args[0]);
    node.falling = PyObject_IsTrue(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (node.row < 0 || node.row >= self->nodes) {
        PyErr_SetString(PyExc_IndexError, "a row outside of the arrays");
        return NULL;
    }
    node.allocatable = PyObject_GetAttr(args[1], self->allocatable_name);
    node.requested = node.allocatable ? PyObject_GetAttr(args[1], self->requested_name) : NULL;
    node.nonzero = node.requested ? PyObject_GetAttr(args[1], self->nonzero_name) : NULL;
    if (!node.nonzero)
        goto done;
    if (!PyList_Check(node.allocatable) || !PyList_Check(node.requested) || !PyTuple_Check(node.nonzero)) {
        PyErr_SetString(PyExc_TypeError, "expected lists of amounts");
        goto done;
    }
    int flags = 0;
    memcpy(self->total, (const int64_t *)self->base.buf + node.row * self->room, (size_t)self->room * sizeof(int64_t));
    for (Py_ssize_t i = 0; i < PyTuple_Size(self->parts) && !PyErr_Occurred(); i++) {
        const Part *part = (const Part *)PyTuple_GetItem(self->parts, i);
        PyObject *argument = PyList_GetItem(args[3], i);
        switch (part->kind) {
        case ARRAY: add_array(part, self, &node, argument); break;
        case AMOUNTS: add_amounts(part, self, &node); break;
        case CARDS: add_cards(part, self, argument); break;
        case UTILIZATION: add_utilization(part, self, &node); break;
        case BALANCE: add_balance(part, self, &node); break;
        case DEVICES: flags |= add_devices(part, self, &node, argument) ? RAISED : 0; break;
        case FRAGMENTS: add_fragments(part, self, &node, argument); break;
        }
    }
    if (PyErr_Occurred())
        goto done;
    int64_t *key = (int64_t *)self->key.buf + node.row;
    for (int64_t class_ = 0; class_ < self->room; class_++, key += self->nodes) {
        flags |= *key < 0 && self->total[class_] >= 0 ? OPENED : 0;
        *key = self->total[class_];
    }
    result = PyLong_FromLong(flags);
done:
    Py_XDECREF(node.allocatable);
    Py_XDECREF(node.requested);
    Py_XDECREF(node.nonzero);
    return result;
}

/* Whether the arrays of a part have the lengths that `room` classes on `nodes` nodes need. */
static int suits_keys(const Part *part, int64_t room, int64_t nodes)
{
    static const int arrays[KINDS] = {0, 2, 2, 2, 2, 5, 2};
    int64_t names = PyTuple_Size(part->names), table = room * nodes;
    if (part->kind != ARRAY && part->held != arrays[part->kind])
        return 0;
    switch (part->kind) {
    case ARRAY: return part->held == 0 || (part->held == 1 && length_of(part, 0) == table);
    case AMOUNTS: return length_of(part, NEEDS) == length_of(part, COLUMNS) * room;
    case CARDS: return length_of(part, SHARES) == names * room && length_of(part, COUNTS) == room && names <= MAX_NUMBERS;
    case UTILIZATION:
    case BALANCE: return length_of(part, REQUESTS) == 2 * room && length_of(part, FACTOR) == room;
    case DEVICES:
        return length_of(part, REQUESTS) == names * room && length_of(part, FACTOR) == room && names < MONOTONE
               && length_of(part, HIGHEST) == room && length_of(part, DIVISOR) == room && length_of(part, RAW) == table;
    default: return length_of(part, WEIGHED) == room && length_of(part, KEPT) == table;
    }
}

/* Whether every capacity by which DEVICES divides is positive, and every column of AMOUNTS not negative. */
static int has_safe_numbers(const Part *part)
{
    if (part->kind == AMOUNTS)
        for (int64_t i = 0; i < length_of(part, COLUMNS); i++)
            if (numbers_of(part, COLUMNS)[i] < 0)
                return 0;
    return 1;
}

/* Part(kind, arrays, numbers, names) */
static PyObject *part_new(PyTypeObject *type, PyObject *args, PyObject *named_)
{
    int kind;
    PyObject *arrays, *numbers, *names;
    (void)named_;
    if (!PyArg_ParseTuple(args, "iO!O!O!", &kind, &PyTuple_Type, &arrays, &PyTuple_Type, &numbers, &PyTuple_Type, &names))
        return NULL;
    if (kind < 0 || kind >= KINDS || PyTuple_Size(arrays) > MAX_ARRAYS || PyTuple_Size(numbers) > MAX_NUMBERS) {
        PyErr_SetString(PyExc_ValueError, "a part of an unknown kind, or with too many arrays or numbers");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Part *self = (Part *)allocate(type, 0);
    if (!self)
        return NULL;
    self->kind = kind;
    self->names = Py_NewRef(names);
    for (Py_ssize_t i = 0; i < PyTuple_Size(numbers); i++)
        self->numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(numbers, i));
    for (; !PyErr_Occurred() && self->held < PyTuple_Size(arrays); self->held++) {
        int written = (kind == ARRAY && self->held == 0) || (kind == DEVICES && self->held == RAW)
                      || (kind == FRAGMENTS && self->held == KEPT);
        if (take(PyTuple_GetItem(arrays, self->held), &self->arrays[self->held], 0, written ? PyBUF_WRITABLE : 0) < 0)
            break;
    }
    if (!PyErr_Occurred() && !has_safe_numbers(self))
        PyErr_SetString(PyExc_ValueError, "a column below 0");
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void part_dealloc(PyObject *object)
{
    Part *self = (Part *)object;
    PyTypeObject *type = Py_TYPE(object);
    while (self->held > 0)
        PyBuffer_Release(&self->arrays[--self->held]);
    Py_XDECREF(self->names);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Keys(base, key, parts, (room, nodes, cpu column, memory column)) */
static PyObject *keys_new(PyTypeObject *type, PyObject *args, PyObject *named_)
{
    PyObject *base, *key, *parts;
    long long room, nodes, cpu, memory;
    (void)named_;
    if (!PyArg_ParseTuple(args, "OOO!(LLLL)", &base, &key, &PyTuple_Type, &parts, &room, &nodes, &cpu, &memory))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Keys *self = (Keys *)allocate(type, 0);
    if (!self)
        return NULL;
    self->room = room;
    self->nodes = nodes;
    self->cpu = cpu;
    self->memory = memory;
    self->parts = Py_NewRef(parts);
    self->allocatable_name = PyUnicode_InternFromString("allocatable");
    self->requested_name = PyUnicode_InternFromString("requested");
    self->nonzero_name = PyUnicode_InternFromString("nonzero");
    self->total = PyMem_Calloc((size_t)room + 1, sizeof(int64_t));
    self->values = PyMem_Calloc((size_t)room + 1, sizeof(int64_t));
    self->fitting = PyMem_Calloc((size_t)room + 1, sizeof(int32_t));
    if (!self->total || !self->values || !self->fitting)
        PyErr_NoMemory();
    else if (take(base, &self->base, 0, 0) == 0 && ++self->held && take(key, &self->key, 0, PyBUF_WRITABLE) == 0)
        self->held++;
    int suits = self->held == 2 && self->base.len == room * nodes * 8 && self->key.len == self->base.len && room >= 0
                && cpu >= 0 && memory >= 0;
    for (Py_ssize_t i = 0; suits && i < PyTuple_Size(parts); i++) {
        PyObject *part = PyTuple_GetItem(parts, i);
        suits = Py_TYPE(part) == part_type && suits_keys((const Part *)part, room, nodes);
    }
    if (!suits && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "arrays that do not fit together");
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void keys_dealloc(PyObject *object)
{
    Keys *self = (Keys *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->held > 0)
        PyBuffer_Release(&self->base);
    if (self->held > 1)
        PyBuffer_Release(&self->key);
    Py_XDECREF(self->parts);
    Py_XDECREF(self->allocatable_name);
    Py_XDECREF(self->requested_name);
    Py_XDECREF(self->nonzero_name);
    PyMem_Free(self->total);
    PyMem_Free(self->values);
    PyMem_Free(self->fitting);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyType_Slot part_slots[] = {{Py_tp_new, part_new}, {Py_tp_dealloc, part_dealloc}, {0, NULL}};
static PyType_Spec part_spec = {"seatrial_kernel.Part", sizeof(Part), 0, Py_TPFLAGS_DEFAULT, part_slots};
static PyMethodDef keys_methods[] = {
    {"update", (PyCFunction)(void (*)(void))keys_update, METH_FASTCALL, "The new keys of a node for all classes."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot keys_slots[] = {
    {Py_tp_new, keys_new}, {Py_tp_dealloc, keys_dealloc}, {Py_tp_methods, keys_methods}, {0, NULL},
};
static PyType_Spec keys_spec = {"seatrial_kernel.Keys", sizeof(Keys), 0, Py_TPFLAGS_DEFAULT, keys_slots};

int add_keys(PyObject *module)
{
    PyObject *part = PyType_FromSpec(&part_spec), *keys = part ? PyType_FromSpec(&keys_spec) : NULL;
    int done = keys && PyModule_AddObjectRef(module, "Part", part) == 0 && PyModule_AddObjectRef(module, "Keys", keys) == 0;
    part_type = (PyTypeObject *)part; /* kept: the module is never unloaded */
    Py_XDECREF(keys);
    return done ? 0 : -1;
}
