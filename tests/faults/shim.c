/*
 * Failures on order, for LD_PRELOAD: the n-th allocation, file operation or child process of a program fails, or all
 * from the n-th on. In: FAULT_KIND (memory, file, child), FAULT_AT (from 1; 0 only counts), FAULT_STICKY, FAULT_WHO (the
 * program's short name: compilers that it starts are left alone); or calls of fault_arm from inside the program.
 * Out: FAULT_COUNT names a file that gets the numbers of operations seen, of each kind.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOTHING, MEMORY, FILES, CHILDREN };

extern char *program_invocation_short_name;
void fault_arm(int kind, long at, bool sticky);
long fault_seen(int kind);

static _Atomic int armed; /* a kind */
static _Atomic long seen[CHILDREN + 1], target;
static _Atomic bool is_sticky;
static _Thread_local volatile int looking_up; /* dlsym allocates, which the compiler is told it does not */

/* Memory for dlsym before the real functions are known; never given back. */
static _Alignas(16) char early[65536];
static _Atomic size_t early_used;

void fault_arm(int kind, long at, bool sticky)
{
    armed = NOTHING;
    for (int i = 0; i <= CHILDREN; i++) seen[i] = 0;
    target = at;
    is_sticky = sticky;
    armed = kind;
}

long fault_seen(int kind)
{
    return seen[kind];
}

static _Thread_local volatile int sparing; /* a sanitizer at work, which ends the process where it has no memory */

static bool fails(int kind, int code)
{
    if (!armed || looking_up || sparing) return false;
    long now = ++seen[kind];
    if (!target || armed != kind || (is_sticky ? now < target : now != target)) return false;
    errno = code;
    return true;
}

/* The loader's own code, but for dlopen, where it reports what fails: it makes room for the thread-local variables of a
 * library at their first use, and ends the process where it cannot. */
static uintptr_t loader_first, loader_last;
static _Thread_local int opening;

static int find_loader(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size, (void)user;
    if (!strstr(info->dlpi_name, "/ld-")) return 0;
    loader_first = loader_last = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t last = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && last > loader_last) loader_last = last;
    }
    return 1;
}

static bool is_loaders(const void *caller)
{
    return (uintptr_t)caller >= loader_first && (uintptr_t)caller < loader_last && !opening;
}
#define MEMORY_FAILS() (!is_loaders(__builtin_return_address(0)) && fails(MEMORY, ENOMEM))

static void *real(void **kept, const char *name)
{
    if (!*kept) {
        looking_up++;
        *kept = dlsym(RTLD_NEXT, name);
        looking_up--;
    }
    return *kept;
}
#define REAL(name)            \
    static void *kept_##name; \
    __typeof__(name) *next_##name = (__typeof__(name) *)real(&kept_##name, #name)

__attribute__((constructor)) static void begin(void)
{
    dl_iterate_phdr(find_loader, NULL);
    const char *kind = getenv("FAULT_KIND"), *at = getenv("FAULT_AT"), *who = getenv("FAULT_WHO");
    if (!kind || !at || (who && strcmp(who, program_invocation_short_name))) return;
    fault_arm(!strcmp(kind, "memory") ? MEMORY
              : !strcmp(kind, "file") ? FILES
                                      : CHILDREN,
              atol(at), getenv("FAULT_STICKY") != NULL);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAULT_COUNT");
    if (!armed) return;
    armed = NOTHING;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld %ld %ld\n", (long)seen[MEMORY], (long)seen[FILES], (long)seen[CHILDREN]);
    fclose(file);
}

/* ---- memory ---- */

static void *early_take(size_t size)
{
    size_t at = atomic_fetch_add(&early_used, (size + 31) / 16 * 16);
    if (at + size > sizeof(early)) return NULL;
    return early + at;
}

static bool is_early(const void *memory)
{
    return (const char *)memory >= early && (const char *)memory < early + sizeof(early);
}

void *malloc(size_t size)
{
    if (looking_up) return early_take(size);
    if (MEMORY_FAILS()) return NULL;
    REAL(malloc);
    return next_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    if (looking_up) return early_take(count * size);
    if (MEMORY_FAILS()) return NULL;
    REAL(calloc);
    return next_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    if (looking_up || is_early(memory)) {
        void *moved = looking_up ? early_take(size) : malloc(size);
        size_t most = memory ? (size_t)(early + sizeof(early) - (char *)memory) : 0;
        if (moved && memory) memcpy(moved, memory, size < most ? size : most);
        return moved;
    }
    if (MEMORY_FAILS()) return NULL;
    REAL(realloc);
    return next_realloc(memory, size);
}

void free(void *memory)
{
    if (is_early(memory) || looking_up) return; /* what dlsym frees while it looks for free is lost */
    REAL(free);
    next_free(memory);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (MEMORY_FAILS()) return NULL;
    REAL(aligned_alloc);
    return next_aligned_alloc(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (MEMORY_FAILS()) return ENOMEM;
    REAL(posix_memalign);
    return next_posix_memalign(memory, alignment, size);
}

char *strdup(const char *words)
{
    char *copy = malloc(strlen(words) + 1);
    return copy ? strcpy(copy, words) : NULL;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (MEMORY_FAILS()) return MAP_FAILED;
    REAL(mmap);
    return next_mmap(at, size, protection, flags, file, offset);
}

/* ---- files ---- */

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (fails(FILES, EMFILE)) return -1;
    REAL(open);
    return next_open(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (fails(FILES, EMFILE)) return -1;
    REAL(openat);
    return next_openat(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    if (fails(FILES, EMFILE)) return NULL;
    REAL(fopen);
    return next_fopen(path, mode);
}

FILE *fdopen(int number, const char *mode)
{
    if (fails(FILES, ENOMEM)) return NULL;
    REAL(fdopen);
    return next_fdopen(number, mode);
}

/* As the C library would: the stream knows that something failed. */
static void spoil(FILE *file)
{
    file->_flags |= 0x20;
}

size_t fread(void *to, size_t size, size_t count, FILE *file)
{
    if (fails(FILES, EIO)) {
        spoil(file);
        return 0;
    }
    REAL(fread);
    return next_fread(to, size, count, file);
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *file)
{
    if (file != stdout && file != stderr && fails(FILES, ENOSPC)) {
        spoil(file);
        return 0;
    }
    REAL(fwrite);
    return next_fwrite(from, size, count, file);
}

int fflush(FILE *file)
{
    if (file && file != stdout && file != stderr && fails(FILES, ENOSPC)) {
        spoil(file);
        return EOF;
    }
    REAL(fflush);
    return next_fflush(file);
}

int fclose(FILE *file)
{
    REAL(fclose);
    int status = next_fclose(file);
    return fails(FILES, ENOSPC) ? EOF : status;
}

ssize_t read(int file, void *to, size_t size)
{
    if (fails(FILES, EIO)) return -1;
    REAL(read);
    return next_read(file, to, size);
}

ssize_t write(int file, const void *from, size_t size)
{
    if (file > 2 && fails(FILES, ENOSPC)) return -1;
    REAL(write);
    return next_write(file, from, size);
}

int close(int file)
{
    REAL(close);
    int status = next_close(file);
    return fails(FILES, EIO) ? -1 : status;
}

int rename(const char *from, const char *to)
{
    if (fails(FILES, EACCES)) return -1;
    REAL(rename);
    return next_rename(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    if (fails(FILES, ENOSPC)) return -1;
    REAL(mkdir);
    return next_mkdir(path, mode);
}

char *mkdtemp(char *pattern)
{
    if (fails(FILES, ENOSPC)) return NULL;
    REAL(mkdtemp);
    return next_mkdtemp(pattern);
}

int mkstemp(char *pattern)
{
    if (fails(FILES, ENOSPC)) return -1;
    REAL(mkstemp);
    return next_mkstemp(pattern);
}

int stat(const char *path, struct stat *about)
{
    if (fails(FILES, EACCES)) return -1;
    REAL(stat);
    return next_stat(path, about);
}

int lstat(const char *path, struct stat *about)
{
    if (fails(FILES, EACCES)) return -1;
    REAL(lstat);
    return next_lstat(path, about);
}

int fstat(int file, struct stat *about)
{
    if (fails(FILES, EIO)) return -1;
    REAL(fstat);
    return next_fstat(file, about);
}

int fsync(int file)
{
    if (fails(FILES, EIO)) return -1;
    REAL(fsync);
    return next_fsync(file);
}

DIR *opendir(const char *path)
{
    if (fails(FILES, EMFILE)) return NULL;
    REAL(opendir);
    return next_opendir(path);
}

char *realpath(const char *restrict path, char *restrict resolved)
{
    if (fails(FILES, EACCES)) return NULL;
    REAL(realpath);
    return next_realpath(path, resolved);
}

void *dlopen(const char *path, int flags)
{
    if (fails(FILES, EMFILE)) return NULL;
    REAL(dlopen);
    opening++;
    void *library = next_dlopen(path, flags);
    opening--;
    return library;
}

/* ---- children and threads ---- */

pid_t fork(void)
{
    if (fails(CHILDREN, EAGAIN)) return -1;
    REAL(fork);
    return next_fork();
}

int posix_spawn(pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *restrict attributes, char *const *restrict arguments,
                char *const *restrict environment)
{
    if (fails(CHILDREN, EAGAIN)) return EAGAIN;
    REAL(posix_spawn);
    return next_posix_spawn(child, path, actions, attributes, arguments, environment);
}

int posix_spawnp(pid_t *restrict child, const char *restrict path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *restrict attributes, char *const *restrict arguments,
                 char *const *restrict environment)
{
    if (fails(CHILDREN, EAGAIN)) return EAGAIN;
    REAL(posix_spawnp);
    return next_posix_spawnp(child, path, actions, attributes, arguments, environment);
}

pid_t waitpid(pid_t child, int *status, int options)
{
    REAL(waitpid);
    pid_t ended = next_waitpid(child, status, options);
    return ended > 0 && fails(CHILDREN, ECHILD) ? -1 : ended; /* as where another part of the program waited for it */
}

int pipe(int ends[2])
{
    if (fails(CHILDREN, EMFILE)) return -1;
    REAL(pipe);
    return next_pipe(ends);
}

int pipe2(int ends[2], int flags)
{
    if (fails(CHILDREN, EMFILE)) return -1;
    REAL(pipe2);
    return next_pipe2(ends, flags);
}

int pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
    REAL(pthread_getattr_np);
    sparing++;
    int status = next_pthread_getattr_np(thread, attributes);
    sparing--;
    return status;
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes, void *(*work)(void *),
                   void *restrict context)
{
    if (fails(CHILDREN, EAGAIN)) return EAGAIN;
    REAL(pthread_create);
    return next_pthread_create(thread, attributes, work, context);
}
