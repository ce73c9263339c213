/* While the file that TALLYSTONE_TEST_EIO names exists, reads of cold files (*.cold) fail in the process that preloads this; while
   the one that TALLYSTONE_TEST_STALL names exists, they do not return. Valkey loads modules so that they find the functions of the C
   library first; here it does not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_marked(const char *name) {
    const char *mark = getenv(name);
    return mark && access(mark, F_OK) == 0;
}

static int is_cold(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path);
    return length >= 5 && memcmp(path + length - 5, ".cold", 5) == 0;
}

ssize_t pread64(int file, void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    while (is_marked("TALLYSTONE_TEST_STALL") && is_cold(file)) usleep(1000);
    if (!is_marked("TALLYSTONE_TEST_EIO") || !is_cold(file)) return real(file, bytes, count, at);
    errno = EIO;
    return -1;
}

void *dlopen(const char *path, int flags) {
    static void *(*real)(const char *, int);
    if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return real(path, flags & ~RTLD_DEEPBIND);
}
