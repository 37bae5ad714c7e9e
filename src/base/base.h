/*
 * base: what every other folder stands on; it knows nothing of tensors.
 *
 * Memory comes from arenas (freed all at once) except for growable text and what says otherwise. Small memory is always
 * given; a call that ran short of it ends with QN_NO_MEMORY (heap.c, docs/decisions/011).
 * Failure is a `qn_status` plus a message in a `qn_error`; `QN_TRY` passes it on. `CHECK` is for our own
 * mistakes only: it prints and aborts.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_BASE_BASE_H
#define QUERN_BASE_BASE_H

#include <pthread.h>
#include <quern/try.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define MAXIMUM(a, b) ((a) > (b) ? (a) : (b))

/* Our own mistakes: always on, prints the place, aborts. Never for bad input. */
#define CHECK(condition) ((condition) ? (void)0 : base_check_failed(#condition, __FILE__, __LINE__))
_Noreturn void base_check_failed(const char *condition, const char *file, int line);

/* heap.c: memory that never fails to the caller. When the system has none it comes from a reserve, the thread is short of
 * memory from then on, and heap_status says so at the end of every step of the work. For what is small beside the work
 * itself: sizes that the user chose go to malloc, and the caller checks. All memory is given back with heap_free, that of
 * malloc too. */
void *heap_new(size_t size_bytes);                       /* zeroed */
void *heap_array(size_t count, size_t item_bytes);       /* zeroed */
void *heap_aligned(size_t alignment, size_t size_bytes); /* zeroed; never resized */
void *heap_resize(void *memory, size_t size_bytes);      /* what is new is not zeroed; NULL is fine */
char *heap_copy_text(const char *words);
void heap_free(void *memory);           /* NULL is fine */
void heap_in_use(int64_t change_bytes); /* large blocks: the reserve grows with them */
bool heap_is_short(void);               /* the calling thread: the system refused memory since the call began */
bool heap_take_short(void);             /* and from now on it is not: for handing it from a worker's job ... */
void heap_set_short(void);              /* ... to the thread that waits for it */
size_t heap_reserve_most_bytes(void);   /* handed out at once, ever: for tests */
qn_status heap_refuse(qn_error *error);
static inline qn_status heap_status(qn_error *error)
{
    return heap_is_short() ? heap_refuse(error) : QN_OK;
}
/* A step that works on memory of its own: what it began to make is nobody else's yet, its caller frees that after an
 * error, and it holds no file, child or thread. When it needs more than the reserve it is left where it is (lists outside
 * of arenas are lost then). After it the caller need not ask heap_status. */
typedef qn_status heap_step(void *context, qn_error *error);
qn_status heap_try(heap_step *step, void *context, qn_error *error);
bool heap_is_stopped(void); /* a call was left in the middle of its changes: every further one is refused */
void heap_allow_reserve(size_t size_bytes); /* for tests: no more than that from now on (0: all), and not stopped */
/* A public call begins with HEAP_ENTER: it is refused when there is no reserve, and short of memory only by what happens
 * in it. Calls inside calls (callbacks too) belong to the outermost one. The value: what the function returns then, and
 * when it is left in the middle. HEAP_GUARD is for the latter alone: work of a thread of the library. */
typedef struct heap_call {
    struct heap_call *outer;
    int depth, held_count; /* of calls and locks when it began */
    bool is_step;
    jmp_buf back;
} heap_call;
bool heap_enter(heap_call *call);
void heap_guard(heap_call *call);
/* The same for a call that is not left in the middle, one op of a tape: refused without so much in the reserve. */
bool heap_begin(size_t need_bytes);
void heap_leave(heap_call *call);
#define HEAP_ENTER_ELSE(refused)                                 \
    heap_call call_of_heap __attribute__((cleanup(heap_leave))); \
    if (!heap_enter(&call_of_heap)) return refused;              \
    if (setjmp(call_of_heap.back)) return refused
#define HEAP_ENTER(error) HEAP_ENTER_ELSE(heap_refuse(error))
#define HEAP_GUARD()                                             \
    heap_call call_of_heap __attribute__((cleanup(heap_leave))); \
    heap_guard(&call_of_heap);                                   \
    if (setjmp(call_of_heap.back)) return

/* A mutex that is known to heap.c: a call that is left gives it back. */
void lock_take(pthread_mutex_t *lock);
void lock_give(pthread_mutex_t *lock);

/* arena.c: memory that dies all at once, from the heap: allocation never fails to the caller. */
typedef struct arena arena;
arena *arena_new(void);
void arena_free(arena *a);                                        /* NULL is fine */
void *arena_alloc(arena *a, size_t size_bytes);                   /* zeroed, aligned to 16 */
char *arena_copy_text(arena *a, const char *text, size_t length); /* adds the final NUL */
char *arena_print(arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used_bytes(const arena *a);
#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, count) ((type *)arena_alloc((a), sizeof(type) * (size_t)(count)))

/* Append to a growable array that lives in an arena: `items`, `count`, `capacity` are lvalues. */
#define ARENA_PUSH(a, items, count, capacity, item)                                                                    \
    do {                                                                                                               \
        if ((count) == (capacity)) (items) = arena_grow((a), (items), (size_t)(count), &(capacity), sizeof(*(items))); \
        (items)[(count)++] = (item);                                                                                   \
    } while (0)
void *arena_grow(arena *a, const void *items, size_t count, int *capacity, size_t item_size);

/* text.c: a growable, always NUL-terminated string on the heap. `{0}` is an empty one. */
typedef struct text {
    char *data; /* NULL while empty */
    size_t length, capacity;
} text;
void text_add(text *t, const char *words); /* appends */
void text_add_bytes(text *t, const char *bytes, size_t count);
void text_add_whole(text *t, int64_t number); /* in decimal; many times as fast as printing it */
void text_print(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_print_list(text *t, const char *format, va_list list);
void text_clear(text *t); /* keeps the memory */
/* Each line from `from` on stands behind a copy of the last one before it that begins with `mark`. */
void text_repeat(text *t, size_t from, const char *mark);
void text_free(text *t);
/* For callers of the library: malloc'd, since `free` knows no reserve; NULL: no memory. The text is empty then. */
char *text_hand_over(text *t);
const char *text_get(const text *t); /* "" when empty; owned by t */
/* A C-style quoted string with \n \t \\ \" and \xNN. */
void text_add_quoted(text *t, const char *bytes, size_t count);
/* The shortest decimal that reads back as the same double; inf, -inf, nan as words. */
void text_add_double(text *t, double value);

/* escape.c: words of others (paths, names, messages, lines of files) made harmless for the place they are to stand in.
 * Valid UTF-8 that no terminal obeys stays readable; the rest becomes \xNN, in a string \NNN. */
typedef enum escape_place {
    ESCAPE_COMMENT, /* between the marks of a comment of C or CUDA, or on the line of one */
    ESCAPE_STRING,  /* between the quotes of a string of C or CUDA, or of #line */
    ESCAPE_SCREEN,  /* lines on a terminal: \n and \t stay */
    ESCAPE_PAGE     /* text or a quoted attribute of HTML or SVG: entities; \n and \t stay */
} escape_place;
void text_add_escaped(text *t, escape_place place, const char *bytes, size_t count);
/* As ESCAPE_SCREEN, in `size` bytes of room (at most ESCAPE_MOST_BYTES), cut at the end; allocates nothing. */
#define ESCAPE_MOST_BYTES 4096
void escape_in_place(char *words, size_t size);
int utf8_length(const char *bytes, size_t count); /* of the first character; 0: no UTF-8 */

/* number.c: numbers as text, whatever locale the host program has set: a decimal point, always. As snprintf and strtod. */
/* A finite number as a literal of C, by as few digits as give it again; as a float unless wide. */
void plain_literal(char *to, size_t size, double x, bool wide);
int plain_print(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int plain_print_list(char *to, size_t size, const char *format, va_list list);
double number_parse(const char *words, char **end); /* end may be NULL */
/* All of the words as a number from 0 on, one of the letters of `units` may follow, which is *unit, else 0. */
bool number_amount(const char *words, const char *units, double *number, char *unit);
/* Between the two, whatever this thread calls prints and reads numbers so. */
typedef struct number_words {
    void *locale;
} number_words;
number_words number_words_begin(void);
void number_words_end(number_words before);

/* map.c: things by hash, each a number of the caller's; what is the same is the caller's to say. In an arena. All zero but the
 * memory: empty. */
typedef struct hash_index {
    arena *memory;
    struct hash_entry *entries;
    int capacity, count;
} hash_index;
void hash_index_add(hash_index *h, uint64_t hash, int number); /* number >= 0 */
/* The next number that was added with this hash, *at being 0 at first; -1: there is no more. */
int hash_index_next(const hash_index *h, uint64_t hash, int *at);
void hash_index_remove(hash_index *h, uint64_t hash, int number); /* it was added with this hash */
void hash_index_clear(hash_index *h);

/* map.c: string to pointer, keys borrowed. Lives in an arena. */
typedef struct map map;
map *map_new(arena *a);
void *map_get(const map *m, const char *key); /* NULL if absent */
void map_set(map *m, const char *key, void *value);
int map_count(const map *m);

/* hash.c: 128 bits for content-addressed names (not cryptographic). */
typedef struct hash128 {
    uint64_t low, high;
} hash128;
hash128 hash_bytes(const void *bytes, size_t size_bytes);
void hash_to_hex(hash128 hash, char hex[33]);

/* error.c: fills *error (may be NULL) and returns the status, so that a caller can `return error_set(...)`. */
qn_status error_set(qn_error *error, qn_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Codes of diagnostics: E101 and so on are their numbers. */
typedef enum error_code {
    ERROR_NONE,
#define ERROR(letter, number, what, advice) letter##number = number,
#include "base/errors.def"
#undef ERROR
} error_code;
const char *error_code_text(error_code code); /* "E101"; "?" for what is none */
bool error_code_is_warning(error_code code);
/* As error_set, with "file:line:column: error E101: " before it: file may be NULL, line 0. */
qn_status error_diagnose(qn_error *error, qn_status status, error_code code, const char *file, int line, int column,
                         const char *format, ...) __attribute__((format(printf, 7, 8)));
/* What stands behind the code in the message of a diagnostic; all of it without a code. */
const char *error_words(const qn_error *error);
/* The name of the list nearest to `name` by edit distance, or NULL if none is close: "did you mean ...?" */
const char *suggest_name(const char *name, const char *const *list, int count);

/* os.c: time, files, processes, libraries. Paths are UTF-8 bytes. */
int64_t clock_now_ns(void); /* monotonic */
/* Another one at each call, in this process and in any other, also one of another container or machine that shares a folder
 * and has the same process number: for the names of files that are written aside. */
unsigned long long number_unique(void);
/* For what must be a plain file, which the caller asks: a pipe without a writer is opened without waiting for one. */
FILE *file_open_plain(const char *path);
/* The data is malloc'd, a NUL added. */
qn_status file_read(const char *path, size_t limit_bytes, char **data, size_t *size_bytes, qn_error *error);
qn_status folder_make(const char *path, qn_error *error); /* with its parents */
qn_status folder_open(const char *path, qn_error *error); /* the same, and files can be made in it */
/* Files of our own: plain files of this user that nobody else may write. No link is followed, no FIFO waited for. */
bool file_may_be_read(
    const char *path); /* no pipe and no device, which may never end; what is not there is told by reading it */
bool file_is_own(int file);
qn_status file_read_own(const char *path, size_t limit_bytes, char **data, size_t *size_bytes, qn_error *error);
bool file_append_own(const char *path, const void *data, size_t size_bytes); /* a line of a record: may be lost */
/* process.c: runs a program found on PATH with its output captured; *exit_code is -1 if a signal ended it. output may be
 * NULL. One that has not finished in time ($QUERN_COMPILE_LIMIT seconds, else 600; 0: no limit) is killed with all that it
 * started, and that is a failure. */
qn_status process_run(const char *const *arguments, text *output, int *exit_code, qn_error *error);
qn_status process_run_for(const char *const *arguments, double limit_s, text *output, int *exit_code, qn_error *error);
bool program_find(const char *name, char *path, size_t path_size);
int cpu_count(void); /* cores this process may use: affinity and cgroup quota */
int process_number(void);
const char *environment_get(const char *name); /* NULL when unset or empty */
/* Waits until no other process has its turn by this file (made where it is not there); -1 without a path or where it cannot be opened. */
int turn_take(const char *path);
void turn_leave(int turn);

/* leftover.c: what would stay behind if a signal ended the process, from when it is there until it is gone; a place is -1 where
 * the table is full. qn_clear_up (workbench.h) ends and removes what is in it. */
int leftover_child(int child); /* it leads a process group */
int leftover_file(const char *path);
void leftover_gone(int place);
/* Under $TMPDIR or /tmp, with a name that begins so. Removed with the files in it. */
bool folder_make_private(const char *name, char *path, size_t size, int *place);
void folder_remove_private(const char *path, int place);

/* aside.c: a file that is whole or not there: written aside piece by piece, flushed to the disk, renamed. */
typedef struct file_aside file_aside;
qn_status file_begin(const char *path, file_aside **out, qn_error *error);
qn_status file_append(file_aside *f, const void *data, size_t size_bytes, qn_error *error);
/* Into its place if `status` is QN_OK, else nothing stays of it; frees f. Returns the status, or that of finishing. */
qn_status file_finish(file_aside *f, qn_status status, qn_error *error);
qn_status file_end(file_aside *f, qn_status status, qn_error *error); /* the same, not flushed */
/* All at once, and not flushed. */
qn_status file_write(const char *path, const void *data, size_t size_bytes, qn_error *error);

/* pool.c: persistent worker threads, static chunks, the caller works too. One job at a time; callers queue. */
typedef struct pool pool;
typedef void pool_work(void *context, int64_t first, int64_t last, int worker);
pool *pool_new(int threads);
void pool_free(pool *p);
int pool_threads(const pool *p);
/* Splits [0, count) over the workers and returns when all is done. `grain`: fewest items worth a hand-over. */
void pool_run(pool *p, int64_t count, int64_t grain, pool_work *work, void *context);
/* Many jobs, each finished before the next begins, as one: workers are woken once. */
typedef struct pool_job {
    pool_work *work;
    void *context;
    int64_t count, grain;
    const struct record_facts *facts;  /* a launch ends with this job, and stands in the record under them; or NULL */
    _Alignas(64) _Atomic int64_t next; /* the first item that nobody has taken; of the pool alone, as the next one */
    _Atomic int64_t done;              /* items */
    _Atomic int64_t begun, ended;      /* of record_now, where it is seen */
} pool_job;
void pool_run_jobs(pool *p, pool_job *jobs, int count);

#endif
