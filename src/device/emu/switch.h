/*
 * Coroutines: changing the stack that the processor runs on. Every switch is a call; what a call may change is lost,
 * everything else comes back with the stack pointer.
 * SPDX-License-Identifier: MIT
 */
#ifndef QUERN_DEVICE_EMU_SWITCH_H
#define QUERN_DEVICE_EMU_SWITCH_H

/* Leaves the running coroutine, keeping its place in *from, and goes on at `to`. */
void emu_switch(void **from, void *to);
/* The place from which a new stack begins: `start` is called there, and must never return. `top` is its upper end. */
void *emu_switch_prepare(void *top, void (*start)(void));

#endif
