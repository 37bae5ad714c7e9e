/*
 * The device's side of a profile: where its times come from, and which launch each belongs to.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_PROFILE_DEVICE_SIDE_H
#define QUERN_PROFILE_DEVICE_SIDE_H

#include "profile/session.h"

/* Tracing begins, by the best source there is: p->device_source and p->device_reason say which, and why no better. NULL:
 * there is no device that needs it. */
device_side *device_side_open(qn_profile *p);
/* A record of the host that has an identity; kept: the phase that it was made in is kept. */
void device_side_host(device_side *s, const record *r, bool kept);
void device_side_phase(device_side *s, bool kept); /* from now on */
/* What has arrived goes to the profile. */
void device_side_collect(device_side *s);
/* The same with all that was launched so far: waits for the devices. */
void device_side_settle(device_side *s);
/* Tracing ends: settles, and what found no launch is kept by its time. Then only close. */
void device_side_finish(device_side *s);
void device_side_close(device_side *s); /* NULL is fine */

#endif
