/*
 * What the compiler calls in emu's checked mode: every access of the text, as for a race detector.
 * SPDX-License-Identifier: MIT
 */

// ---- the checked mode: the compiler calls these before every access ----
#ifdef QUERN_EMU_CHECKED
EMU_EXPORT void emu_is_checked() {}
EMU_QUIET __attribute__((noinline)) static void emu_check(const void *p, size_t size_bytes, int kind, const void *place)
{
    if (((unsigned long)p ^ emu_stack()) < EMU_STACK_BYTES) return;
    emu_calls->access(emu_self(), p, size_bytes, kind, place);
}
#define EMU_CALLBACK(result, name, ...) EMU_QUIET result emu_tsan_##name(__VA_ARGS__) __asm__("__tsan_" #name); EMU_QUIET result emu_tsan_##name(__VA_ARGS__)
#define EMU_CHECK(name, size, kind) EMU_CALLBACK(void, name, void *p) { emu_check(p, size, kind, __builtin_return_address(0)); }
#define EMU_CHECKS(size) EMU_CHECK(read##size, size, 0) EMU_CHECK(write##size, size, 1) EMU_CHECK(unaligned_read##size, size, 0) \
    EMU_CHECK(unaligned_write##size, size, 1) EMU_CHECK(volatile_read##size, size, 0) EMU_CHECK(volatile_write##size, size, 1) \
    EMU_CHECK(read_write##size, size, 1) EMU_CHECK(unaligned_read_write##size, size, 1)
EMU_CHECKS(1) EMU_CHECKS(2) EMU_CHECKS(4) EMU_CHECKS(8) EMU_CHECKS(16)
EMU_CALLBACK(void, read_range, void *p, size_t size) { emu_check(p, size, 0, __builtin_return_address(0)); }
EMU_CALLBACK(void, write_range, void *p, size_t size) { emu_check(p, size, 1, __builtin_return_address(0)); }
EMU_CALLBACK(void, init, void) {}
EMU_CALLBACK(void, func_entry, void *) {}
EMU_CALLBACK(void, func_exit, void) {}
EMU_CALLBACK(void, vptr_update, void **, void *) {}
EMU_CALLBACK(void, atomic_thread_fence, int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#define EMU_NOTED emu_check((void *)p, sizeof(*p), 2, __builtin_return_address(0))
#define EMU_CHECKED_UPDATE(bits, T, name) \
    EMU_CALLBACK(T, atomic##bits##_fetch_##name, volatile T *p, T v, int) { EMU_NOTED; return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST); }
#define EMU_CHECKED_EXCHANGE(bits, T, name) \
    EMU_CALLBACK(int, atomic##bits##_compare_exchange_##name, volatile T *p, T *e, T v, int, int) \
    { EMU_NOTED; return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
#define EMU_CHECKED_ATOMICS(bits, T) \
    EMU_CALLBACK(T, atomic##bits##_load, const volatile T *p, int) { EMU_NOTED; return __atomic_load_n(p, __ATOMIC_SEQ_CST); } \
    EMU_CALLBACK(void, atomic##bits##_store, volatile T *p, T v, int) { EMU_NOTED; __atomic_store_n(p, v, __ATOMIC_SEQ_CST); } \
    EMU_CALLBACK(T, atomic##bits##_exchange, volatile T *p, T v, int) { EMU_NOTED; return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
    EMU_CHECKED_EXCHANGE(bits, T, strong) EMU_CHECKED_EXCHANGE(bits, T, weak) \
    EMU_CHECKED_UPDATE(bits, T, add) EMU_CHECKED_UPDATE(bits, T, sub) EMU_CHECKED_UPDATE(bits, T, and) EMU_CHECKED_UPDATE(bits, T, or) \
    EMU_CHECKED_UPDATE(bits, T, xor)
EMU_CHECKED_ATOMICS(8, unsigned char)
EMU_CHECKED_ATOMICS(16, unsigned short)
EMU_CHECKED_ATOMICS(32, unsigned int)
EMU_CHECKED_ATOMICS(64, unsigned long)
#endif
