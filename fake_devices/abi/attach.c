#define _GNU_SOURCE
#include "attach.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct Header *table_header;

static int fits(const struct Header *header, uint64_t bytes)
{
    return header->magic == TABLE_MAGIC && header->layout == TABLE_LAYOUT && header->layout_hash == TABLE_HASH &&
           header->bytes == bytes;
}

int table_attach(void)
{
    Dl_info info;
    struct stat status;
    char path[4096];
    if (table_header)
        return 0;
    if (!dladdr(&table_header, &info) || !info.dli_fname)
        return -1;
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname + 1) : 0;
    if (snprintf(path, sizeof path, "%.*sdevice.table", folder, info.dli_fname) >= (int)sizeof path)
        return -1;
    int writable = 1, file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) { /* mounted read-only: only the mailbox does not work */
        writable = 0;
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0)
        return -1;
    void *map = MAP_FAILED;
    if (!fstat(file, &status) && (size_t)status.st_size >= sizeof(struct Header))
        map = mmap(0, status.st_size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED)
        return -1;
    if (!fits(map, status.st_size)) {
        munmap(map, status.st_size);
        return -1;
    }
    table_header = map;
    return 0;
}

void table_read(const void *record, void *copy, size_t bytes)
{
    const uint32_t *lock = record;
    for (int tries = 0; tries < 100000; tries++) {
        uint32_t before = __atomic_load_n(lock, __ATOMIC_ACQUIRE);
        memcpy(copy, record, bytes);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(before & 1) && __atomic_load_n(lock, __ATOMIC_RELAXED) == before)
            return;
    }
}

void table_sleep_ms(uint32_t milliseconds)
{
    struct timespec pause = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&pause, &pause))
        ;
}

void table_dawdle(const struct Library *library, const char *name)
{
    if (library->delay_ms)
        table_sleep_ms(library->delay_ms);
    while (library->hang[0] && !strncmp(library->hang, name, sizeof library->hang))
        table_sleep_ms(10);
}

enum { FREE, FILLING, ASKED, ANSWERED };
enum { STEP_MS = 10, STEPS = 200 };

int table_ask(uint32_t operation, uint32_t device, const uint64_t *arguments, int count, const char *text,
              struct Mailbox *answer)
{
    struct Mailbox *box = (struct Mailbox *)((char *)table_header + table_header->mailbox_offset);
    uint32_t expected = FREE;
    for (int tries = 0; !__atomic_compare_exchange_n(&box->state, &expected, FILLING, 0, __ATOMIC_ACQ_REL,
                                                     __ATOMIC_RELAXED);
         tries++) {
        if (tries == STEPS)
            return -1;
        expected = FREE;
        table_sleep_ms(STEP_MS);
    }
    box->operation = operation;
    box->device = device;
    for (int at = 0; at < 8; at++)
        box->arguments[at] = at < count ? arguments[at] : 0;
    snprintf(box->text, sizeof box->text, "%s", text ? text : "");
    __atomic_store_n(&box->state, ASKED, __ATOMIC_RELEASE);
    for (int tries = 0; tries < STEPS; tries++) {
        if (__atomic_load_n(&box->state, __ATOMIC_ACQUIRE) == ANSWERED) {
            *answer = *box;
            __atomic_store_n(&box->state, FREE, __ATOMIC_RELEASE);
            return 0;
        }
        table_sleep_ms(STEP_MS);
    }
    __atomic_store_n(&box->state, FREE, __ATOMIC_RELEASE);
    return -1;
}
