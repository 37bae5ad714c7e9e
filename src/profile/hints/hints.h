/*
 * Hints: what bounds each kernel, what that costs, what to do about it.
 *
 *     a profile | a point of a benchmark | a kernel that was only compiled -> hint_input -> rules -> hint_list -> text
 *
 * A rule (hints.def) is a threshold and some arithmetic over the input; it adds a hint or stays silent. A gain is a share
 * of the kernel's time (of the run's, for rules of the run), never more than the roofline leaves where times and
 * ceilings are known. A hint whose gain is not worth a line is not in the list.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_HINTS_HINTS_H
#define QUERN_PROFILE_HINTS_HINTS_H

#include "profile/session.h"
#include "run/workbench/accesses.h"

typedef enum hint_scope { HINT_OF_KERNEL, HINT_OF_RUN } hint_scope;
typedef enum hint_rule {
#define RULE(name, scope, title, advice) HINT_##name,
#include "profile/hints/hints.def"
#undef RULE
    HINT_RULES
} hint_rule;

/* What the device is, as far as anybody knows: 0 where nobody does. */
typedef struct hint_machine {
    bool gpu;
    int units;                           /* multiprocessors; threads of a CPU */
    double copy_gb_per_s, read_gb_per_s; /* measured ceilings */
    double fma_gflop_per_s, tensor_gflop_per_s;
    double link_gb_per_s;                 /* between host and device, from pinned memory */
    double clock_mhz, promised_clock_mhz; /* while it ran; what it reaches alone */
    const char *clock_reason;             /* "power cap", "thermal", NULL: not known */
} hint_machine;

/* Hardware counters of a kernel, where somebody read them; else NAN. */
typedef struct hint_counters {
    double occupancy;                /* achieved */
    double dram_bytes, sector_share; /* sector_share: useful bytes of those that global accesses moved */
    double bank_conflicts;           /* turns of shared memory beyond the first, in one launch */
} hint_counters;

typedef struct hint_kernel { /* all launches with the same facts */
    const record_facts *facts;
    int64_t calls;
    double total_ns, median_ns; /* on the device; NAN: it was not timed */
    bool is_shared_out;         /* it ran in a graph that was timed as a whole: total_ns is its share by bytes */
    const launch_look *look;    /* NULL: nobody looked */
    hint_machine machine;
    hint_counters counters;
} hint_kernel;

typedef struct hint_input {
    arena *memory;
    const qn_profile *profile; /* NULL: no run */
    double wall_ns;            /* of the run; NAN: there is none */
    hint_kernel *kernels;
    int kernel_count, kernel_capacity;
    hint_machine machine; /* of the device that did most */
} hint_input;

typedef struct hint {
    hint_rule number;
    const char *rule, *title;             /* as in hints.def */
    const hint_kernel *of;                /* NULL: of the run */
    const char *kernel, *device, *shapes; /* where it is one's, or comes to light at one; else NULL */
    const char *file;                     /* NULL: no place */
    int line;
    const char *what, *evidence, *advice; /* sentences: with numbers; where those are from; what to try */
    double gain;                          /* share of the kernel's time, or of the run's */
    double gain_ns, gain_share;           /* of the run; NAN: nothing was timed */
} hint;

typedef struct hint_list {
    const hint_input *input;
    hint *items; /* best first */
    int count, capacity;
} hint_list;

typedef struct hint_rule_info {
    const char *name, *title, *advice;
    hint_scope scope;
    void (*kernel)(const hint_input *in, const hint_kernel *k, hint_list *out);
    void (*run)(const hint_input *in, hint_list *out);
} hint_rule_info;
extern const hint_rule_info hint_rules[HINT_RULES];

/* hints.c */
hint_machine machine_of(qn_context *context, const char *device); /* what is known without measuring */
hint_counters counters_unknown(void);
/* Kernels and machine of a profile. Everything found lives in `memory`, with pointers into the profile. */
void hints_from_profile(const qn_profile *profile, const qn_hint_options *options, arena *memory, hint_input *out);
void hints_find(const hint_input *in, hint_list *out); /* runs the rules; sorted, in in->memory */
/* Both: the hints of a profile, best first. ceilings: see qn_hint_options; may be NULL. */
void hints_of_profile(const qn_profile *profile, const qn_ceilings *ceilings, arena *memory, hint_list *out);
/* For rules. `line` 0: the kernel's own place. advice NULL: the rule's. */
void hint_of_kernel(hint_list *list, hint_rule rule, const hint_kernel *k, int line, double gain, const char *evidence,
                    const char *advice, const char *what, ...) __attribute__((format(printf, 8, 9)));
void hint_of_run(hint_list *list, hint_rule rule, const record_facts *at, double gain, const char *evidence,
                 const char *what, ...) __attribute__((format(printf, 6, 7)));
double hint_bytes(const hint_kernel *k); /* that it has to move: of arrays that it only touches in part, that part */
/* The time below which no kernel of these bytes and operations can come; NAN: no ceiling is known. */
double hint_floor_ns(const hint_kernel *k, bool *by_memory);

/* hints/look.c */
typedef struct shape_words { /* one array of record_facts.shapes; no data */
    const char *name;
    int name_length;
    array_view view;
} shape_words;
int shapes_read(const char *shapes, shape_words *out, int most); /* how many; stops at what it does not understand */
double shape_bytes(const shape_words *w);
/* How the text of a launch touches memory; NULL: not a GPU's, raw text, or the launch cannot be planned again. */
const launch_look *look_again(qn_context *context, const record_facts *f, arena *memory);

/* hints/print.c */
void hints_print(const hint_list *list, int most, bool colour, text *out); /* most 0: all; nothing when it is empty */
void hints_print_json(const hint_list *list, text *out);

#endif
