/*
 * Calls that are checked in one word. Both take a call that returns a qn_status, which is 0 if all went well.
 *
 * QN_TRY(call): in a function that returns a qn_status (or an int that is 0 for success): hands a failure to the caller.
 * QN_MUST(call, error): in main, in examples and tests: prints the place and the message to stderr, and exits with 1.
 *
 * Example (a function that hands errors on, and a caller that ends):
 *     static qn_status load(qn_context *c, qn_module **m, qn_error *e) { QN_TRY(qn_module_load_text(c, "k.qn", "kernel k(out i32 y[n]) launch (n) { y[program(0)] = 1; }", m, e)); return QN_OK; }
 *     qn_error error;
 *     qn_context *context;
 *     qn_module *module;
 *     QN_MUST(qn_context_open(NULL, &context, &error), error);
 *     QN_MUST(load(context, &module, &error), error);
 *     qn_module_free(module);
 *     qn_context_close(context);
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_TRY_H
#define QUERN_TRY_H

#include <quern/status.h>
#include <stdio.h>
#include <stdlib.h>

#define QN_TRY(call)                                      \
    do {                                                  \
        qn_status status_of_try = (call);                 \
        if (status_of_try != QN_OK) return status_of_try; \
    } while (0)

#define QN_MUST(call, error)                                                     \
    do {                                                                         \
        if ((call) != QN_OK) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, (error).message); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

#endif
