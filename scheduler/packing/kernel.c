/* Scores of placements, compiled: the arithmetic of fragments.py, opportunity.py and strategies.py for some nodes and
 * some shapes in one call. Python defines the results; sums are formed in the same order, so that both give the same
 * numbers to the last bit. Built by `seatrial build-kernel` together with keys.c, and used where it has been built.
 *
 * Only the limited API of Python 3.11 is used, so one library serves all later versions.
 */
#include "kernel.h"

#define CARD 1000         /* shapes.CARD */
#define MAX_PRICED 256
#define WORST (-1e6)      /* strategies.WORST */
#define BEST_FIT 100.0    /* strategies.BEST_FIT */
#define LARGEST_CPU 128000.0
#define LARGEST_GPU 8000.0

enum { FGD, BALANCED, OPPORTUNITY_COST };

/* Arrays in the order in which the caller passes them. [P]: large shapes. The last two change with the prices. */
enum {
    BY_CARD, BY_FREE, STEPS,                                     /* Fragments */
    CPU, MEMORY, WHOLE, PART, REQUEST,                           /* Shapes, [S] */
    GRADES,                                                      /* strategies.GRADES */
    LARGE_CPU, LARGE_MEMORY, LARGE_GPUS, OWN, ACCEPTS,           /* [P], [P], [P], [P, S], [model, P] */
    PRICE, FOR_SETS,                                             /* [P], 0 for none; [model, S], or nothing */
    ARRAYS
};

typedef struct {
    PyObject_HEAD
    Py_buffer arrays[ARRAYS];
    int held; /* how many of `arrays` are to be released */
    int strategy, several, charges; /* whether anything has a price */
    int64_t rows, width, models, shapes, shared, priced;
    double gpu_per_cpu;
} Scorer;

static inline const double *doubles(const Scorer *self, int array) { return self->arrays[array].buf; }
static inline const int64_t *integers(const Scorer *self, int array) { return self->arrays[array].buf; }
static inline int64_t length(const Scorer *self, int array) { return self->arrays[array].len / 8; }
static inline double larger(double one, double other) { return one > other ? one : other; }
static inline int64_t at_least(int64_t value, int64_t least) { return value > least ? value : least; }

/* NumPy's sum over a contiguous axis of up to 128 numbers. */
static double sum_of(const double *values, int64_t count)
{
    if (count < 8) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += values[i];
        return sum;
    }
    double part[8];
    int64_t i;
    for (i = 0; i < 8; i++)
        part[i] = values[i];
    for (i = 8; i < count - count % 8; i += 8)
        for (int j = 0; j < 8; j++)
            part[j] += values[i + j];
    double sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < count; i++)
        sum += values[i];
    return sum;
}

/* The number of steps that are at most `value`. Bisection without branches: none can be predicted. */
static inline int64_t step_of(const Scorer *self, int64_t value)
{
    const int64_t *steps = integers(self, STEPS), *first = steps;
    int64_t count = length(self, STEPS);
    if (count == 0)
        return 0;
    while (count > 1) {
        int64_t half = count / 2;
        first = first[half - 1] <= value ? first + half : first;
        count -= half;
    }
    return first - steps + (*first <= value);
}

/* Fragments.gains for one node. */
static void fragment_gains(const Scorer *self, int64_t model, int64_t cpu, const int64_t *cards, int64_t count, double *gains)
{
    const double *by_card = doubles(self, BY_CARD), *by_free = doubles(self, BY_FREE);
    double each[MAX_CARDS], opened = 0, kept = 0, base = 0;
    int64_t free_cards = 0, row = -1;
    for (int64_t card = 0; card < count; card++)
        free_cards += cards[card] == CARD;
    row = model * self->rows + step_of(self, cpu);
    for (int64_t card = 0; card < count; card++)
        each[card] = by_card[row * (CARD + 1) + cards[card]];
    double worth = sum_of(each, count);
    if (self->several)
        worth += by_free[row * self->width + free_cards];
    row = -1;
    for (int64_t shape = 0; shape < self->shapes; shape++) {
        int64_t own = model * self->rows + step_of(self, cpu - integers(self, CPU)[shape]);
        const double *table = by_card + own * (CARD + 1);
        if (own != row) { /* shapes are sorted by CPU, so most share it with the one before */
            row = own;
            for (int64_t card = 0; card < count; card++)
                each[card] = table[cards[card]];
            base = sum_of(each, count);
            opened = self->several ? by_free[row * self->width + at_least(free_cards - 1, 0)] : 0;
            kept = self->several ? by_free[row * self->width + free_cards] : 0;
        }
        double after = base;
        if (shape < self->shared) {
            int64_t part = integers(self, PART)[shape];
            double best = -Py_HUGE_VAL;
            for (int64_t card = 0; card < count; card++) {
                int64_t left = cards[card] - part;
                if (left < 0)
                    continue;
                double change = table[left] - each[card];
                if (self->several)
                    change += cards[card] == CARD ? opened : kept;
                best = larger(best, change);
            }
            after += best;
        } else {
            int64_t whole = integers(self, WHOLE)[shape];
            after -= (double)whole * table[CARD];
            if (self->several)
                after += by_free[row * self->width + at_least(free_cards - whole, 0)];
        }
        after += (double)integers(self, REQUEST)[shape];
        gains[shape] = after - worth;
    }
}

/* Subtracts Fragments.stranded and the weight for filling a node: strategies.balanced_gains. */
static void balance(const Scorer *self, int64_t cpu, const int64_t *cards, int64_t count, double *gains)
{
    const double rate = self->gpu_per_cpu;
    int64_t idle = 0;
    for (int64_t card = 0; card < count; card++)
        idle += cards[card];
    double before = larger((double)idle - (double)at_least(cpu, 0) * rate, 0);
    for (int64_t shape = 0; shape < self->shapes; shape++) {
        int64_t cpu_left = cpu - integers(self, CPU)[shape], gpu_left = idle - integers(self, REQUEST)[shape];
        double after = larger((double)gpu_left - (double)at_least(cpu_left, 0) * rate, 0);
        double fit = BEST_FIT * ((double)cpu_left / LARGEST_CPU + (double)gpu_left / LARGEST_GPU);
        gains[shape] = gains[shape] - (after - before) - fit;
    }
}

/* How many pods of a large shape fit: Demand._fitting. */
static inline double fitting(double cpu, double memory, double cards, double for_cpu, double for_memory, double for_cards)
{
    double fits = cpu / for_cpu, other = memory / for_memory, third = cards / for_cards;
    fits = other < fits ? other : fits;
    fits = third < fits ? third : fits;
    return fits > 0 ? (double)(int64_t)fits : 0;
}

/* Subtracts Demand.cost. */
static void charge(const Scorer *self, int64_t model, int64_t cpu, int64_t memory, const int64_t *cards, int64_t count,
                   double *gains)
{
    int64_t free_cards = 0, used = 0;
    for (int64_t card = 0; card < count; card++) {
        free_cards += cards[card] == CARD;
        if (cards[card] < CARD)
            used = at_least(cards[card], used);
    }
    const double *accepts = doubles(self, ACCEPTS) + model * self->priced;
    const double *for_cpu = doubles(self, LARGE_CPU), *for_memory = doubles(self, LARGE_MEMORY);
    const double *for_cards = doubles(self, LARGE_GPUS), *price = doubles(self, PRICE);
    const double *for_sets = length(self, FOR_SETS) ? doubles(self, FOR_SETS) + model * self->shapes : NULL;
    double before[MAX_PRICED];
    int64_t lost_by[MAX_PRICED], some = 0; /* large shapes that have a price and places here */
    for (int64_t large = 0; large < self->priced; large++) {
        before[large] = price[large] == 0 ? 0 : accepts[large] * fitting(
            (double)cpu, (double)memory, (double)free_cards, for_cpu[large], for_memory[large], for_cards[large]);
        if (before[large] != 0)
            lost_by[some++] = large;
    }
    if (!some && !for_sets)
        return;
    for (int64_t shape = 0; shape < self->shapes; shape++) {
        double left_cpu = (double)(cpu - integers(self, CPU)[shape]);
        double left_memory = (double)(memory - integers(self, MEMORY)[shape]), cost = 0;
        int64_t left = free_cards - integers(self, WHOLE)[shape];
        if (shape < self->shared && used < integers(self, PART)[shape])
            left--; /* no card in use has room for the part */
        for (int64_t one = 0; one < some; one++) {
            int64_t large = lost_by[one];
            double lost = before[large] - accepts[large] * fitting(left_cpu, left_memory, (double)left, for_cpu[large],
                                                                   for_memory[large], for_cards[large]);
            lost -= doubles(self, OWN)[large * self->shapes + shape];
            cost = larger(cost, larger(lost, 0) * price[large]);
        }
        gains[shape] -= for_sets ? cost + for_sets[shape] : cost;
    }
}

/* strategies.graded: the number of grades that the gain reaches, by bisection without branches. */
static int64_t graded(const Scorer *self, double gain)
{
    const double *grades = doubles(self, GRADES), *first = grades;
    int64_t count = length(self, GRADES);
    if (count == 0)
        return 0;
    while (count > 1) {
        int64_t half = count / 2;
        first = first[half - 1] <= gain ? first + half : first;
        count -= half;
    }
    return first - grades + (*first <= gain);
}

/* strategies.spread_out */
static int64_t spread_out(double gain)
{
    double cards = larger(gain, WORST) / CARD;
    return (int64_t)(50 * (1 + cards / (1 + (cards < 0 ? -cards : cards))));
}

static void score_node(const Scorer *self, int64_t model, int64_t cpu, int64_t memory, const int64_t *cards, int64_t count,
                       double *gains)
{
    fragment_gains(self, model, cpu, cards, count, gains);
    if (self->strategy != FGD)
        balance(self, cpu, cards, count, gains);
    if (self->strategy == OPPORTUNITY_COST && self->charges)
        charge(self, model, cpu, memory, cards, count, gains);
}

static inline int64_t grade(const Scorer *self, double gain)
{
    return self->strategy == FGD ? graded(self, gain) : spread_out(gain);
}

int take(PyObject *object, Py_buffer *buffer, int floats, int flags)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | flags) < 0)
        return -1;
    char format = buffer->format ? buffer->format[0] : 'B';
    if (buffer->itemsize == 8 && (floats ? format == 'd' : format == 'l' || format == 'q'))
        return 0;
    PyErr_Format(PyExc_TypeError, "expected an array of %s, found format %c", floats ? "float64" : "int64", format);
    PyBuffer_Release(buffer);
    return -1;
}

static int is_float(int array) { return array < STEPS || array >= GRADES; }

/* score(model, cpu, memory, cards, scores): fills `scores` [shape, node] for nodes in the states of `NodeStates`. */
static PyObject *scorer_score(PyObject *object, PyObject *args)
{
    Scorer *self = (Scorer *)object;
    Py_buffer taken[5];
    int held = 0;
    PyObject *result = NULL;
    double *gains = NULL;
    if (PyTuple_Size(args) != 5) {
        PyErr_SetString(PyExc_TypeError, "expected model, cpu, memory, cards and scores");
        return NULL;
    }
    for (; held < 5; held++)
        if (take(PyTuple_GetItem(args, held), &taken[held], 0, held == 4 ? PyBUF_WRITABLE : 0) < 0)
            goto done;
    const int64_t *model = taken[0].buf, *cpu = taken[1].buf, *memory = taken[2].buf, *cards = taken[3].buf;
    int64_t *scores = taken[4].buf;
    int64_t nodes = taken[0].len / 8, count = nodes ? taken[3].len / 8 / nodes : 0;
    if (taken[1].len != taken[0].len || taken[2].len != taken[0].len || count * nodes * 8 != taken[3].len
        || count >= self->width || count > MAX_CARDS || taken[4].len != nodes * self->shapes * 8) {
        PyErr_SetString(PyExc_ValueError, "arrays of different lengths, or more cards than the tables have");
        goto done;
    }
    gains = PyMem_Malloc((size_t)at_least(self->shapes, 1) * sizeof(double));
    if (!gains) {
        PyErr_NoMemory();
        goto done;
    }
    for (int64_t node = 0; node < nodes; node++) {
        const int64_t *own = cards + node * count;
        int64_t wrong = model[node] < 0 || model[node] >= self->models;
        for (int64_t card = 0; card < count; card++)
            wrong |= own[card] < 0 || own[card] > CARD;
        if (wrong) {
            PyErr_SetString(PyExc_IndexError, "a model or what is left on a card is outside of the tables");
            goto done;
        }
        score_node(self, model[node], cpu[node], memory[node], own, count, gains);
        for (int64_t shape = 0; shape < self->shapes; shape++)
            scores[shape * nodes + node] = grade(self, gains[shape]);
    }
    result = Py_NewRef(Py_None);
done:
    PyMem_Free(gains);
    while (held > 0)
        PyBuffer_Release(&taken[--held]);
    return result;
}

static PyTypeObject *scorer_type;

int is_scorer(PyObject *object) { return Py_TYPE(object) == scorer_type; }

int64_t scorer_shapes(PyObject *scorer) { return ((Scorer *)scorer)->shapes; }

int score_of_node(PyObject *scorer, int64_t model, int64_t cpu, int64_t memory, PyObject *listed, int64_t *scores)
{
    const Scorer *self = (const Scorer *)scorer;
    int64_t cards[MAX_CARDS] = {0}, count = self->width - 1, given = PyTuple_Size(listed);
    int wrong = model < 0 || model >= self->models || given > count || count > MAX_CARDS;
    for (int64_t card = 0; !wrong && card < given; card++) {
        cards[card] = PyLong_AsLongLong(PyTuple_GetItem(listed, card));
        wrong = cards[card] < 0 || cards[card] > CARD;
    }
    if (wrong) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "a model, or the cards of the node, are outside of the tables");
        return -1;
    }
    double *gains = PyMem_Malloc((size_t)at_least(self->shapes, 1) * sizeof(double));
    if (!gains) {
        PyErr_NoMemory();
        return -1;
    }
    score_node(self, model, cpu, memory, cards, count, gains);
    for (int64_t shape = 0; shape < self->shapes; shape++)
        scores[shape] = grade(self, gains[shape]);
    PyMem_Free(gains);
    return 0;
}

/* score_one(model, cpu, memory, cards, scores): the same for one node, `cards` a tuple; fewer cards than the widest node
 * has are filled up with cards that have nothing left. `scores` is [shape]. */
static PyObject *scorer_score_one(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Scorer *self = (Scorer *)object;
    if (given != 5 || !PyTuple_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "expected model, cpu, memory, a tuple of cards and scores");
        return NULL;
    }
    int64_t model = PyLong_AsLongLong(args[0]), cpu = PyLong_AsLongLong(args[1]), memory = PyLong_AsLongLong(args[2]);
    Py_buffer scores;
    if (PyErr_Occurred() || take(args[4], &scores, 0, PyBUF_WRITABLE) < 0)
        return NULL;
    if (scores.len != self->shapes * 8)
        PyErr_SetString(PyExc_ValueError, "expected one score for each shape");
    else
        score_of_node(object, model, cpu, memory, args[3], scores.buf);
    PyBuffer_Release(&scores);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static int fits_together(const Scorer *self)
{
    int64_t shapes = self->shapes, priced = self->priced, table = self->models * self->rows;
    const int64_t expected[ARRAYS] = {
        [BY_CARD] = table * (CARD + 1), [BY_FREE] = table * self->width, [STEPS] = self->rows - 1,
        [CPU] = shapes, [MEMORY] = shapes, [WHOLE] = shapes, [PART] = shapes, [REQUEST] = shapes,
        [GRADES] = length(self, GRADES),
        [LARGE_CPU] = priced, [LARGE_MEMORY] = priced, [LARGE_GPUS] = priced, [PRICE] = priced,
        [OWN] = priced * shapes, [ACCEPTS] = priced * self->models,
        [FOR_SETS] = length(self, FOR_SETS) ? self->models * shapes : 0,
    };
    for (int array = 0; array < ARRAYS; array++)
        if (length(self, array) != expected[array])
            return 0;
    for (int64_t shape = 0; shape < shapes; shape++)
        if (integers(self, WHOLE)[shape] < 0 || integers(self, PART)[shape] < 0)
            return 0;
    return self->shared >= 0 && self->shared <= shapes && priced <= MAX_PRICED;
}

static void read_prices(Scorer *self)
{
    self->charges = length(self, FOR_SETS) > 0;
    for (int64_t large = 0; large < self->priced; large++)
        self->charges |= doubles(self, PRICE)[large] != 0;
}

/* price(price, for_sets): the last two arrays are these from now on. */
static PyObject *scorer_price(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Scorer *self = (Scorer *)object;
    Py_buffer price, for_sets;
    if (given != 2) {
        PyErr_SetString(PyExc_TypeError, "expected price and for_sets");
        return NULL;
    }
    if (take(args[0], &price, 1, 0) < 0)
        return NULL;
    if (take(args[1], &for_sets, 1, 0) < 0) {
        PyBuffer_Release(&price);
        return NULL;
    }
    if (price.len != self->arrays[PRICE].len || (for_sets.len && for_sets.len != self->models * self->shapes * 8)) {
        PyBuffer_Release(&for_sets);
        PyBuffer_Release(&price);
        PyErr_SetString(PyExc_ValueError, "expected a price for each large shape, and what each shape pays by model");
        return NULL;
    }
    PyBuffer_Release(&self->arrays[PRICE]);
    PyBuffer_Release(&self->arrays[FOR_SETS]);
    self->arrays[PRICE] = price;
    self->arrays[FOR_SETS] = for_sets;
    read_prices(self);
    return Py_NewRef(Py_None);
}

/* Scorer(arrays, (strategy, several, rows, width, models, shared), gpu_per_cpu) */
static PyObject *scorer_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *arrays;
    int strategy, several;
    long long rows, width, models, shared;
    double gpu_per_cpu;
    (void)named;
    if (!PyArg_ParseTuple(args, "O!(iiLLLL)d", &PyTuple_Type, &arrays, &strategy, &several, &rows, &width, &models,
                          &shared, &gpu_per_cpu))
        return NULL;
    if (PyTuple_Size(arrays) != ARRAYS || rows < 1 || width < 1 || models < 1) {
        PyErr_Format(PyExc_ValueError, "expected %d arrays, and tables that are not empty", ARRAYS);
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Scorer *self = (Scorer *)allocate(type, 0);
    if (!self)
        return NULL;
    self->strategy = strategy;
    self->several = several;
    self->rows = rows;
    self->width = width;
    self->models = models;
    self->shared = shared;
    self->gpu_per_cpu = gpu_per_cpu;
    for (; self->held < ARRAYS; self->held++)
        if (take(PyTuple_GetItem(arrays, self->held), &self->arrays[self->held], is_float(self->held), 0) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    self->shapes = length(self, CPU);
    self->priced = length(self, PRICE);
    if (!fits_together(self)) {
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, "arrays that do not fit together");
        return NULL;
    }
    read_prices(self);
    return (PyObject *)self;
}

static void scorer_dealloc(PyObject *object)
{
    Scorer *self = (Scorer *)object;
    PyTypeObject *type = Py_TYPE(object);
    while (self->held > 0)
        PyBuffer_Release(&self->arrays[--self->held]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"score", scorer_score, METH_VARARGS, "score(model, cpu, memory, cards, scores): fill scores [shape, node]."},
    {"score_one", (PyCFunction)(void (*)(void))scorer_score_one, METH_FASTCALL, "The same for one node: scores [shape]."},
    {"price", (PyCFunction)(void (*)(void))scorer_price, METH_FASTCALL, "price(price, for_sets): new prices."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, scorer_new}, {Py_tp_dealloc, scorer_dealloc}, {Py_tp_methods, methods}, {0, NULL},
};
static PyType_Spec spec = {"seatrial_kernel.Scorer", sizeof(Scorer), 0, Py_TPFLAGS_DEFAULT, slots};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "seatrial_kernel", "Compiled scores and keys.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_seatrial_kernel(void)
{
    PyObject *made = PyModule_Create(&module), *type = made ? PyType_FromSpec(&spec) : NULL;
    if (!type || PyModule_AddObjectRef(made, "Scorer", type) < 0 || add_keys(made) < 0)
        Py_CLEAR(made);
    scorer_type = (PyTypeObject *)type; /* kept: the module is never unloaded */
    return made;
}
