/* Shifts the wall clock of the process that preloads it (LD_PRELOAD) by the milliseconds in the file that
   TALLYSTONE_TEST_CLOCK names: eight bytes, a signed number in the order of this machine. The file is mapped, so a change
   acts at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset_ms;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TALLYSTONE_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset_ms = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && offset_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = at->tv_nsec + *offset_ms % 1000 * 1000000;
        at->tv_sec += *offset_ms / 1000 + (ns < 0 ? -1 : ns >= 1000000000);
        at->tv_nsec = (ns + 1000000000) % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    at->tv_sec = exact.tv_sec;
    at->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at) *at = exact.tv_sec;
    return exact.tv_sec;
}
