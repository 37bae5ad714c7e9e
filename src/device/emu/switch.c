/*
 * Changing stacks: by hand for x86-64 and aarch64 (some 2 ns), by ucontext elsewhere (some 200 ns: it asks the kernel
 * for the signal mask). Only the registers that a called function must keep are saved; the floating-point modes are
 * the same for all.
 * SPDX-License-Identifier: MIT
 */
#include "device/emu/switch.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch, . - emu_switch\n");

void *emu_switch_prepare(void *top, void (*start)(void))
{
    uintptr_t *words = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15);
    *--words = 0; /* where start would return to */
    *--words = (uintptr_t)start;
    for (int i = 0; i < 6; i++) *--words = 0;
    return words;
}

#elif defined(__aarch64__)

__asm__(".text\n"
        ".globl emu_switch\n"
        ".hidden emu_switch\n"
        ".type emu_switch, %function\n"
        "emu_switch:\n"
        "    stp x19, x20, [sp, #-160]!\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp x19, x20, [sp], #160\n"
        "    ret\n"
        ".size emu_switch, . - emu_switch\n");

void *emu_switch_prepare(void *top, void (*start)(void))
{
    uintptr_t *words = (uintptr_t *)((uintptr_t)top & ~(uintptr_t)15) - 20;
    memset(words, 0, 20 * sizeof(*words));
    words[11] = (uintptr_t)start; /* x30 */
    return words;
}

#else

#include <ucontext.h>

void emu_switch(void **from, void *to)
{
    ucontext_t here;
    // cppcheck-suppress autoVariables ; it lies on the stack that is left, and lives until that goes on
    *from = &here;
    swapcontext(&here, to);
}

/* The context lies on the stack itself; what start needs lies below it. */
void *emu_switch_prepare(void *top, void (*start)(void))
{
    const uintptr_t bytes = 128 << 10;
    ucontext_t *c = (ucontext_t *)(((uintptr_t)top - sizeof(*c)) & ~(uintptr_t)63);
    getcontext(c);
    c->uc_stack.ss_sp = (char *)c - bytes;
    c->uc_stack.ss_size = bytes;
    c->uc_link = NULL;
    makecontext(c, start, 0);
    return c;
}

#endif
