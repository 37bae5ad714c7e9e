/*
 * Status and error of every call that can fail.
 *
 * Example (tests/scripts/headers.sh compiles and runs every header's example, as C11 and as C++17):
 *     qn_error error;
 *     qn_context *context;
 *     if (qn_context_open(NULL, &context, &error) != QN_OK) { fprintf(stderr, "%s\n", error.message); return 1; }
 *     qn_context_close(context);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_STATUS_H
#define QUERN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QN_MUST_CHECK __attribute__((warn_unused_result))
#define QN_API __attribute__((visibility("default")))
#else
#define QN_MUST_CHECK
#define QN_API
#endif

/* Returns the status of a call that failed, from a function that returns one. */
#define QN_CHECK(call)                                              \
    do {                                                            \
        qn_status qn_status_of_check = (call);                      \
        if (qn_status_of_check != QN_OK) return qn_status_of_check; \
    } while (0)

typedef enum qn_status {
    QN_OK = 0,
    QN_FINDING,    /* the program ran and a check found something: the message tells the first finding */
    QN_BAD_CALL,   /* a wrong argument of this call: name, shape, type, setting */
    QN_BAD_SOURCE, /* the .qn text has errors: the message holds the diagnostics */
    QN_BAD_FILE,   /* a file cannot be read, written or understood */
    QN_NO_DEVICE,  /* the device or its compiler is not there: the message says what to install */
    QN_NO_MEMORY,
    QN_FAILED /* a launch failed: an assert, the compiler, the system */
} qn_status;

/* Filled on failure; the message is one or more whole lines, cut at the end if too long. */
typedef struct qn_error {
    qn_status status;
    char message[4096];
    int code;         /* of the first diagnostic that the message holds: 502 of E502 (docs/language.md); 0: none */
    int line, column; /* ... and its place in the source; 0: none */
} qn_error;

QN_API const char *qn_status_name(qn_status status); /* "ok", "finding", ... */

#ifdef __cplusplus
}
#endif
#endif
