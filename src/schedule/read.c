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
    sscanf(line, "launch of phase %d: fed tile=%dx%dx%d stages=%d groups=%d order=%d blocks=%d%n", phase, &c.tile[0],
           &c.tile[1], &c.tile[2], &c.stages, &c.groups, &c.order, &c.blocks, &used);
    if (!used) return false;
    c.turns = !strcmp(line + used, " in turns");
    if (!c.turns && line[used]) return false;
    *out = c;
    return true;
}
