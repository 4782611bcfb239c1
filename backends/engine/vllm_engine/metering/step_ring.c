/* Records steps that repeat the previous batch, as worker_meter.py does in Python, but with fewer cold cache lines.
 * Loads CUDA's driver functions by name from its stable interface, so that building needs nothing of CUDA. Every
 * function is called with the GIL held, and none waits. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY */

static struct {
    int (*create)(void **, unsigned);
    int (*destroy)(void *);
    int (*record)(void *, void *);
    int (*query)(void *);
    int (*elapsed)(float *, void *, void *);
    int (*get_context)(void **);
    int (*set_context)(void *);
} cuda;
static void *context; /* of the thread that made the first event: others that read events enter it */

static PyObject *failed(const char *call, int code) {
    return PyErr_Format(PyExc_RuntimeError, "%s failed with CUDA error %d", call, code);
}

static void enter_context(void) {
    void *current = NULL;
    if (context && cuda.get_context(&current) == 0 && current == NULL) cuda.set_context(context);
}

/* A CUDA event that takes the time; gpu_clock.GpuEvent. */
typedef struct {
    PyObject_HEAD
    void *handle;
    int is_recorded;
} Event;

static void *stream_of(PyObject *stream) {
    return stream == NULL || stream == Py_None ? NULL : PyLong_AsVoidPtr(stream);
}

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    if (cuda.create == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "open_driver has not been called");
        return NULL;
    }
    Event *self = (Event *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (context == NULL) cuda.get_context(&context);
    int code = cuda.create(&self->handle, 0);
    if (code == 0) return (PyObject *)self;
    self->handle = NULL;
    Py_DECREF(self);
    return failed("cuEventCreate", code);
}

static void event_dealloc(Event *self) {
    if (self->handle) cuda.destroy(self->handle);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *event_record(Event *self, PyObject *const *args, Py_ssize_t count) {
    void *stream = stream_of(count ? args[0] : NULL);
    if (stream == NULL && PyErr_Occurred()) return NULL;
    int code = cuda.record(self->handle, stream);
    if (code) return failed("cuEventRecord", code);
    self->is_recorded = 1;
    Py_RETURN_NONE;
}

static PyObject *event_query(Event *self, PyObject *unused) {
    enter_context();
    int code = self->is_recorded ? cuda.query(self->handle) : NOT_READY;
    if (code && code != NOT_READY) return failed("cuEventQuery", code);
    return PyBool_FromLong(code == 0);
}

static PyTypeObject EventType;

static PyObject *event_elapsed_time(Event *self, PyObject *later) {
    float milliseconds;
    if (!PyObject_TypeCheck(later, &EventType)) {
        PyErr_SetString(PyExc_TypeError, "elapsed_time takes an event of the same kind");
        return NULL;
    }
    enter_context();
    int code = cuda.elapsed(&milliseconds, self->handle, ((Event *)later)->handle);
    if (code) return failed("cuEventElapsedTime", code);
    return PyFloat_FromDouble(milliseconds);
}

static PyMethodDef event_methods[] = {
    {"record", (PyCFunction)(void (*)(void))event_record, METH_FASTCALL, "Put the event into a stream."},
    {"query", (PyCFunction)event_query, METH_NOARGS, "Say whether the stream has passed it."},
    {"elapsed_time", (PyCFunction)event_elapsed_time, METH_O, "Give the milliseconds to a later event."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject EventType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "step_ring.Event",
    .tp_basicsize = sizeof(Event),
    .tp_dealloc = (destructor)event_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = event_methods,
    .tp_new = event_new,
    .tp_doc = "A CUDA event that takes the time.",
};

/* Steps: `begun` >= `ended` >= `taken` >= `read` >= `freed` count them for good, modulo the size they are slots. */
typedef struct {
    Event *last;
    int64_t launched_ns;
} Slot;

typedef struct {
    PyObject_HEAD
    Slot *slots;
    Py_ssize_t size;
    uint64_t begun, ended, taken, read, freed;
    void *stream;
    PyObject *names; /* whose steps are awaited; NULL: nobody's */
    int64_t next_total, count, left, until_ns;
} Ring;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    Py_ssize_t size;
    PyObject *stream;
    if (!PyArg_ParseTuple(args, "nO", &size, &stream)) return NULL;
    if (size < 2) return PyErr_Format(PyExc_ValueError, "a ring has at least 2 slots, not %zd", size);
    void *handle = stream_of(stream);
    if (handle == NULL && PyErr_Occurred()) return NULL;
    Ring *self = (Ring *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->stream = handle;
    self->slots = PyMem_Calloc((size_t)size, sizeof(Slot));
    if (self->slots == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (self->size = 0; self->size < size; self->size++) {
        self->slots[self->size].last = (Event *)PyObject_CallNoArgs((PyObject *)&EventType);
        if (self->slots[self->size].last == NULL) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void ring_dealloc(Ring *self) {
    for (Py_ssize_t place = 0; self->slots && place < self->size; place++) Py_XDECREF(self->slots[place].last);
    PyMem_Free(self->slots);
    Py_XDECREF(self->names);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* await_like(names, total, steps, nanoseconds): the next batches may go on where one ended that left `names`, a list,
 * with `total` tokens computed before the next; for so many steps and so long. */
static PyObject *ring_await_like(Ring *self, PyObject *args) {
    PyObject *names;
    long long total, steps, nanoseconds;
    if (!PyArg_ParseTuple(args, "O!LLL", &PyList_Type, &names, &total, &steps, &nanoseconds)) return NULL;
    Py_INCREF(names);
    Py_XSETREF(self->names, names);
    self->count = PyList_GET_SIZE(names);
    self->next_total = total;
    self->left = steps;
    self->until_ns = now_ns() + nanoseconds;
    Py_RETURN_NONE;
}

static PyObject *ring_stop(Ring *self, PyObject *unused) {
    Py_CLEAR(self->names);
    Py_RETURN_NONE;
}

static struct {
    PyObject *cached, *fresh, *finished, *drafts, *encoder, *total, *counts, *req_ids, *resumed, *computed;
} word;

/* Say whether an attribute is there and empty. */
static int is_empty(PyObject *one, PyObject *name) {
    PyObject *found = PyObject_GetAttr(one, name);
    if (found == NULL) return 0;
    int truth = PyObject_IsTrue(found);
    Py_DECREF(found);
    return truth == 0;
}

/* The sum of a list of numbers, or -1. */
static int64_t sum_of(PyObject *numbers) {
    int64_t sum = 0;
    if (!PyList_CheckExact(numbers)) return -1;
    for (Py_ssize_t place = 0; place < PyList_GET_SIZE(numbers); place++)
        sum += PyLong_AsLongLong(PyList_GET_ITEM(numbers, place));
    return PyErr_Occurred() ? -1 : sum;
}

static int is_awaited(Ring *self, PyObject *batch) {
    int found = 0;
    PyObject *cached = PyObject_GetAttr(batch, word.cached);
    PyObject *req_ids = cached ? PyObject_GetAttr(cached, word.req_ids) : NULL;
    PyObject *computed = req_ids ? PyObject_GetAttr(cached, word.computed) : NULL;
    PyObject *total = computed ? PyObject_GetAttr(batch, word.total) : NULL;
    PyObject *counts = total ? PyObject_GetAttr(batch, word.counts) : NULL;
    if (counts && PyLong_AsLongLong(total) == self->count && PyObject_Size(counts) == self->count &&
        PyObject_RichCompareBool(req_ids, self->names, Py_EQ) == 1 && sum_of(computed) == self->next_total)
        found = is_empty(batch, word.fresh) && is_empty(batch, word.finished) && is_empty(batch, word.drafts) &&
                is_empty(batch, word.encoder) && is_empty(cached, word.resumed);
    Py_XDECREF(counts);
    Py_XDECREF(total);
    Py_XDECREF(computed);
    Py_XDECREF(req_ids);
    Py_XDECREF(cached);
    PyErr_Clear(); /* what is of another shape is read in Python, which says so */
    return found;
}

/* begin(batch) -> bool: take a step, if it is as awaited and there is room; else all is as it was. */
static PyObject *ring_begin(Ring *self, PyObject *batch) {
    if (self->names == NULL) Py_RETURN_FALSE;
    int64_t launched_ns = now_ns();
    if (self->left <= 0 || launched_ns >= self->until_ns || self->begun != self->ended ||
        self->begun - self->freed >= (uint64_t)self->size || !is_awaited(self, batch)) {
        Py_CLEAR(self->names);
        Py_RETURN_FALSE;
    }
    self->slots[self->begun % (uint64_t)self->size].launched_ns = launched_ns;
    self->begun++;
    self->left--;
    self->next_total += self->count;
    Py_RETURN_TRUE;
}

/* end() -> bool: stop the clock of the step that was begun here; false where none was. */
static PyObject *ring_end(Ring *self, PyObject *unused) {
    if (self->begun == self->ended) Py_RETURN_FALSE;
    Event *last = self->slots[self->ended % (uint64_t)self->size].last;
    int code = cuda.record(last->handle, self->stream);
    if (code) return failed("cuEventRecord", code);
    last->is_recorded = 1;
    self->ended++;
    Py_RETURN_TRUE;
}

/* cancel() -> bool: forget the step that was begun; none is awaited any more. */
static PyObject *ring_cancel(Ring *self, PyObject *unused) {
    int is_open = self->begun != self->ended;
    self->begun = self->ended;
    Py_CLEAR(self->names);
    return PyBool_FromLong(is_open);
}

static Slot *slot_of(Ring *self, uint64_t number) { return &self->slots[number % (uint64_t)self->size]; }

/* take() -> int: count the steps that have ended since the last call; from then on they can be read. */
static PyObject *ring_take(Ring *self, PyObject *unused) {
    uint64_t count = self->ended - self->taken;
    self->taken = self->ended;
    return PyLong_FromUnsignedLongLong(count);
}

/* read(before, ended_ns, seen_ns, most) -> ([started_ns, busy_ns, ...], event or None, ended_ns): gpu_clock's `follow`
 * for the next steps that have finished. The event is the last one's, and in use until the next call. */
static PyObject *ring_read(Ring *self, PyObject *args) {
    Event *before;
    long long ended_ns, seen_ns, most;
    if (!PyArg_ParseTuple(args, "O!LLL", &EventType, &before, &ended_ns, &seen_ns, &most)) return NULL;
    int64_t count = (int64_t)(self->taken - self->read) < most ? (int64_t)(self->taken - self->read) : most;
    enter_context();
    for (; count > 0; count--) { /* the newest that has finished, and with it all before it */
        int code = cuda.query(slot_of(self, self->read + (uint64_t)count - 1)->last->handle);
        if (code == 0) break;
        if (code != NOT_READY) return failed("cuEventQuery", code);
    }
    if (count <= 0) return Py_BuildValue("[]OL", Py_None, ended_ns);
    PyObject *times = PyList_New((Py_ssize_t)(2 * count));
    if (times == NULL) return NULL;
    for (int64_t place = 0; place < count; place++) {
        Slot *slot = slot_of(self, self->read + (uint64_t)place);
        float milliseconds;
        int code = cuda.elapsed(&milliseconds, before->handle, slot->last->handle);
        if (code) {
            Py_DECREF(times);
            return failed("cuEventElapsedTime", code);
        }
        int64_t started_ns = slot->launched_ns > ended_ns ? slot->launched_ns : ended_ns;
        ended_ns += (int64_t)((double)milliseconds * 1e6 + 0.5);
        if (ended_ns > seen_ns) ended_ns = seen_ns;
        if (ended_ns < started_ns) ended_ns = started_ns;
        PyList_SET_ITEM(times, 2 * place, PyLong_FromLongLong(started_ns));
        PyList_SET_ITEM(times, 2 * place + 1, PyLong_FromLongLong(ended_ns - started_ns));
        before = slot->last;
    }
    self->read += (uint64_t)count;
    self->freed = self->read - 1;
    return Py_BuildValue("NOL", times, before, ended_ns);
}

/* free(): the event of the last step that was read is not needed any more. */
static PyObject *ring_free(Ring *self, PyObject *unused) { self->freed = self->read; Py_RETURN_NONE; }

static PyMethodDef ring_methods[] = {
    {"await_like", (PyCFunction)ring_await_like, METH_VARARGS, "Take batches that go on from one."},
    {"stop", (PyCFunction)ring_stop, METH_NOARGS, "Take none any more."},
    {"begin", (PyCFunction)ring_begin, METH_O, "Begin a step, if it is as awaited."},
    {"end", (PyCFunction)ring_end, METH_NOARGS, "End the step that was begun here."},
    {"cancel", (PyCFunction)ring_cancel, METH_NOARGS, "Forget the step that was begun here."},
    {"take", (PyCFunction)ring_take, METH_NOARGS, "Count the steps that have ended since the last call."},
    {"read", (PyCFunction)ring_read, METH_VARARGS, "Place the steps that have finished."},
    {"free", (PyCFunction)ring_free, METH_NOARGS, "Let the last event that was read be used again."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject RingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "step_ring.Ring",
    .tp_basicsize = sizeof(Ring),
    .tp_dealloc = (destructor)ring_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = ring_methods,
    .tp_new = ring_new,
    .tp_doc = "Steps like those before them, on one stream.",
};

/* open_driver(path): find the driver's functions. Raises OSError. */
static PyObject *open_driver(PyObject *module, PyObject *path) {
    const char *name = PyUnicode_AsUTF8(path);
    void *driver = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (name == NULL) return NULL;
    if (driver == NULL) return PyErr_Format(PyExc_OSError, "%s", dlerror());
    struct { const char *name; void **place; } wanted[] = {
        {"cuEventCreate", (void **)&cuda.create},       {"cuEventDestroy_v2", (void **)&cuda.destroy},
        {"cuEventRecord", (void **)&cuda.record},       {"cuEventQuery", (void **)&cuda.query},
        {"cuEventElapsedTime", (void **)&cuda.elapsed}, {"cuCtxGetCurrent", (void **)&cuda.get_context},
        {"cuCtxSetCurrent", (void **)&cuda.set_context},
    };
    for (size_t place = 0; place < sizeof wanted / sizeof *wanted; place++) {
        *wanted[place].place = dlsym(driver, wanted[place].name);
        if (*wanted[place].place == NULL) {
            cuda.create = NULL;
            return PyErr_Format(PyExc_OSError, "%s has no %s", name, wanted[place].name);
        }
    }
    Py_RETURN_NONE;
}

/* send(fd, data, path): one datagram, now. Raises OSError. A socket's own method would let another thread have the GIL,
 * and wait for it to come back: a tenth of a millisecond of a stream's next token. */
static PyObject *send_now(PyObject *module, PyObject *args) {
    int fd;
    Py_buffer data;
    const char *path;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!PyArg_ParseTuple(args, "iy*s", &fd, &data, &path)) return NULL;
    if (strlen(path) >= sizeof address.sun_path) {
        PyBuffer_Release(&data);
        return PyErr_Format(PyExc_OSError, "%s is too long for a socket's path", path);
    }
    strcpy(address.sun_path, path);
    ssize_t sent =
        sendto(fd, data.buf, (size_t)data.len, MSG_DONTWAIT, (struct sockaddr *)&address, sizeof address);
    PyBuffer_Release(&data);
    if (sent < 0) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"open_driver", open_driver, METH_O, "Find the driver's functions in a library."},
    {"send", send_now, METH_VARARGS, "Send a datagram to a Unix socket without letting go of the GIL."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "step_ring", "Steps like those before them.", -1, functions};

PyMODINIT_FUNC PyInit_step_ring(void) {
    struct { PyObject **place; const char *name; } wanted[] = {
        {&word.cached, "scheduled_cached_reqs"},     {&word.fresh, "scheduled_new_reqs"},
        {&word.finished, "finished_req_ids"},        {&word.drafts, "scheduled_spec_decode_tokens"},
        {&word.encoder, "scheduled_encoder_inputs"}, {&word.total, "total_num_scheduled_tokens"},
        {&word.counts, "num_scheduled_tokens"},      {&word.req_ids, "req_ids"},
        {&word.resumed, "resumed_req_ids"},          {&word.computed, "num_computed_tokens"},
    };
    for (size_t place = 0; place < sizeof wanted / sizeof *wanted; place++)
        if ((*wanted[place].place = PyUnicode_InternFromString(wanted[place].name)) == NULL) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made && !PyModule_AddType(made, &EventType) && !PyModule_AddType(made, &RingType)) return made;
    Py_XDECREF(made);
    return NULL;
}
