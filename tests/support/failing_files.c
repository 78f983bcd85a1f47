/* Counts the file operations of processes inside one folder, and lets number `at` fail.
 *
 * Loaded by LD_PRELOAD, so that it sees what Python, NumPy and the HDF5 library do alike. What to do
 * lies in a file (FAILING_FILES) that all processes of a run share: a `struct control`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, FAIL, SHORT, KILL_BEFORE, KILL_AFTER };

struct control {
    int64_t count; /* operations so far */
    int64_t bytes; /* that were read and written */
    int64_t at;    /* the one that fails, from 0; -1: none */
    int32_t how;   /* one of the above */
    int32_t error; /* errno of FAIL */
    int32_t once;  /* 0: every later one too */
    int32_t hits;  /* operations that failed */
    char folder[1024];
    char named[256]; /* the first operation that failed */
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAILING_FILES");
    if (path == NULL)
        return;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    control = shared == MAP_FAILED ? NULL : shared;
}

static int inside(const char *path)
{
    size_t length = strlen(control->folder);
    return length > 0 && strncmp(path, control->folder, length) == 0 &&
           (path[length] == '/' || path[length] == 0);
}

static int of_descriptor(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0 && inside(path);
}

static int of_path(int folder, const char *path, char *whole)
{
    whole[0] = 0;
    if (path == NULL)
        return 0;
    if (path[0] == '/')
        snprintf(whole, PATH_MAX, "%s", path);
    else if (folder == AT_FDCWD) {
        char here[PATH_MAX];
        if (getcwd(here, sizeof here) == NULL)
            return 0;
        snprintf(whole, PATH_MAX, "%.2000s/%.2000s", here, path);
    } else {
        char there[PATH_MAX];
        of_descriptor(folder, there);
        snprintf(whole, PATH_MAX, "%.2000s/%.2000s", there, path);
    }
    return inside(whole);
}

/* Count an operation; how it fails, if it does. */
static int turn(const char *name, const char *path, int writes)
{
    /* A full disk still gives room back, and reads. */
    if (control->how == FAIL && control->error == ENOSPC &&
        (strncmp(name, "unlink", 6) == 0 || strncmp(name, "rmdir", 5) == 0 ||
         strstr(name, "read") != NULL || strncmp(name, "flock", 5) == 0))
        return NOTHING;
    int64_t number = __atomic_fetch_add(&control->count, 1, __ATOMIC_SEQ_CST);
    if (control->at < 0 || number < control->at || (control->once && number != control->at))
        return NOTHING;
    if (control->how == SHORT && !writes)
        return NOTHING;
    if (__atomic_fetch_add(&control->hits, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(control->named, sizeof control->named, "%s %s", name,
                 path + strlen(control->folder));
    if (control->how == KILL_BEFORE)
        kill(getpid(), SIGKILL);
    if (control->how == FAIL)
        errno = control->error;
    return control->how;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (real == NULL) \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define DO(type, is_inside, name, path, call) \
    int saved = errno, how = NOTHING; \
    if (control != NULL && (is_inside)) \
        how = turn(#name, path, 0); \
    if (how == FAIL) \
        return (type)-1; \
    errno = saved; \
    type result = call; \
    if (how == KILL_AFTER) \
        kill(getpid(), SIGKILL); \
    return result

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        char whole[PATH_MAX]; \
        REAL(int, name, const char *, int, ...); \
        DO(int, of_path(AT_FDCWD, path, whole), name, whole, real(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        char whole[PATH_MAX]; \
        REAL(int, name, int, const char *, int, ...); \
        DO(int, of_path(folder, path, whole), name, whole, real(folder, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

/* Of transfers, writes may be short. */
#define MOVE(name, writes, arguments, call_all, call_half, ...) \
    ssize_t name arguments \
    { \
        char path[PATH_MAX]; \
        path[0] = 0; \
        REAL(ssize_t, name, __VA_ARGS__); \
        int saved = errno, how = NOTHING; \
        if (control != NULL && of_descriptor(file, path)) \
            how = turn(#name, path, writes); \
        if (how == FAIL) \
            return -1; \
        errno = saved; \
        ssize_t result = how == SHORT ? call_half : call_all; \
        if (control != NULL && result > 0 && path[0] == '/') \
            __atomic_fetch_add(&control->bytes, inside(path) ? result : 0, __ATOMIC_SEQ_CST); \
        if (how == KILL_AFTER) \
            kill(getpid(), SIGKILL); \
        return result; \
    }
#define HALF(size) ((size) > 1 ? (size) / 2 : (size))
MOVE(read, 0, (int file, void *to, size_t size), real(file, to, size), real(file, to, size), int,
     void *, size_t)
MOVE(pread, 0, (int file, void *to, size_t size, off_t at), real(file, to, size, at),
     real(file, to, size, at), int, void *, size_t, off_t)
MOVE(pread64, 0, (int file, void *to, size_t size, off64_t at), real(file, to, size, at),
     real(file, to, size, at), int, void *, size_t, off64_t)
MOVE(write, 1, (int file, const void *from, size_t size), real(file, from, size),
     real(file, from, HALF(size)), int, const void *, size_t)
MOVE(pwrite, 1, (int file, const void *from, size_t size, off_t at), real(file, from, size, at),
     real(file, from, HALF(size), at), int, const void *, size_t, off_t)
MOVE(pwrite64, 1, (int file, const void *from, size_t size, off64_t at),
     real(file, from, size, at), real(file, from, HALF(size), at), int, const void *, size_t,
     off64_t)
MOVE(writev, 1, (int file, const struct iovec *from, int parts), real(file, from, parts),
     real(file, from, HALF(parts)), int, const struct iovec *, int)
MOVE(sendfile, 1, (int file, int source, off_t *at, size_t size), real(file, source, at, size),
     real(file, source, at, HALF(size)), int, int, off_t *, size_t)
MOVE(sendfile64, 1, (int file, int source, off64_t *at, size_t size), real(file, source, at, size),
     real(file, source, at, HALF(size)), int, int, off64_t *, size_t)

#define ON_DESCRIPTOR(name, arguments, call, ...) \
    int name arguments \
    { \
        char path[PATH_MAX]; \
        REAL(int, name, __VA_ARGS__); \
        DO(int, of_descriptor(file, path), name, path, call); \
    }
ON_DESCRIPTOR(fsync, (int file), real(file), int)
ON_DESCRIPTOR(fdatasync, (int file), real(file), int)
ON_DESCRIPTOR(ftruncate, (int file, off_t size), real(file, size), int, off_t)
ON_DESCRIPTOR(ftruncate64, (int file, off64_t size), real(file, size), int, off64_t)
ON_DESCRIPTOR(flock, (int file, int how_locked), real(file, how_locked), int, int)

#define ON_PATH(name, arguments, folder, place, call, ...) \
    int name arguments \
    { \
        char whole[PATH_MAX]; \
        REAL(int, name, __VA_ARGS__); \
        DO(int, of_path(folder, place, whole), name, whole, call); \
    }
ON_PATH(rename, (const char *from, const char *to), AT_FDCWD, to, real(from, to), const char *,
        const char *)
ON_PATH(renameat, (int a, const char *from, int b, const char *to), b, to, real(a, from, b, to), int,
        const char *, int, const char *)
ON_PATH(link, (const char *from, const char *to), AT_FDCWD, to, real(from, to), const char *,
        const char *)
ON_PATH(linkat, (int a, const char *from, int b, const char *to, int flags), b, to,
        real(a, from, b, to, flags), int, const char *, int, const char *, int)
ON_PATH(symlink, (const char *from, const char *to), AT_FDCWD, to, real(from, to), const char *,
        const char *)
ON_PATH(unlink, (const char *path), AT_FDCWD, path, real(path), const char *)
ON_PATH(unlinkat, (int a, const char *path, int flags), a, path, real(a, path, flags), int,
        const char *, int)
ON_PATH(rmdir, (const char *path), AT_FDCWD, path, real(path), const char *)
ON_PATH(mkdir, (const char *path, mode_t mode), AT_FDCWD, path, real(path, mode), const char *,
        mode_t)
ON_PATH(mkdirat, (int a, const char *path, mode_t mode), a, path, real(a, path, mode), int,
        const char *, mode_t)
