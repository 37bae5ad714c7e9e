/*
 * The numbers of a schedule, read back. In: a line of a schedule's text (print.c). Out: its phase and choice. With the kernel
 * and the machine they are enough to make the schedule again, so nothing else is read.
 * SPDX-License-Identifier: MIT
 */
#include "schedule/schedule.h"

#include <string.h>

bool schedule_read_choice(const char *line, int *phase, sched_choice *out)
{
    int used = 0;
    sched_choice c = {0};
    /* of nine digits at most: more is no number of a launch, and none that fits */
    sscanf(line, "launch of phase %9d: fed tile=%9dx%9dx%9d stages=%9d groups=%9d order=%9d blocks=%9d%n", phase,
           &c.tile[0], &c.tile[1], &c.tile[2], &c.stages, &c.groups, &c.order, &c.blocks, &used);
    if (!used || c.stages < 1 || c.groups < 1 || c.order < 1 || c.blocks < 1) return false;
    c.turns = !strcmp(line + used, " in turns");
    if (!c.turns && line[used]) return false;
    *out = c;
    return true;
}
