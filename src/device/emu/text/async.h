/*
 * The part of emu's header for work in the background: phases, copies of boxes, products of four warps. The prelude's
 * functions (emit/prelude/cuda/phase.cuh) call these; the engine does the work (emu/phase.c, emu/bulk.c, emu/matrix.c).
 * SPDX-License-Identifier: MIT
 */

// ---- work in the background ----
enum { EMU_PHASE_INIT, EMU_PHASE_EXPECT, EMU_PHASE_ARRIVE, EMU_PHASE_WAIT, EMU_PHASE_READY };
enum { EMU_MATRIX_FENCE = -1 };
enum { EMU_MATRIX_bf16, EMU_MATRIX_f16, EMU_MATRIX_tf32, EMU_MATRIX_e4m3, EMU_MATRIX_s8 };
static inline unsigned long __cvta_generic_to_shared(const void *p) { return emu_calls->address(emu_self(), p); }
static inline void emu_barrier_arrive(int number, int count, EMU_WHERE) { emu_calls->arrive(emu_self(), number, count, file, line); }
static inline void emu_phase(unsigned long long *bar, int what, int number, const char *file, int line) { emu_calls->phase(emu_self(), bar, what, number, file, line); }
static inline void emu_bulk_in(void *to, const void *map, unsigned long long *bar, const int *place, int rank, unsigned mask, const char *file, int line)
{
    emu_calls->bulk_in(emu_self(), to, map, bar, place, rank, mask, file, line);
}
static inline void emu_bulk_out(const void *map, const void *from, const int *place, int rank, const char *file, int line)
{
    emu_calls->bulk_out(emu_self(), map, from, place, rank, file, line);
}
static inline void emu_bulk_commit() { emu_calls->bulk_commit(emu_self()); }
static inline void emu_bulk_wait(int pending, const char *file, int line) { emu_calls->bulk_wait(emu_self(), pending, file, line); }
static inline void emu_fence_async() { emu_calls->fence_async(emu_self()); }
static inline void emu_matrix(int type, int n, void *sums, unsigned long a, const unsigned *registers, unsigned long b, int add, int turn_a, int turn_b, const char *file, int line)
{
    const emu_matrix_call call = {type, n, add, turn_a, turn_b, line, file, sums, a, b, registers};
    emu_calls->matrix(emu_self(), &call);
}
static inline void emu_matrix_commit() { emu_calls->matrix_commit(emu_self()); }
static inline void emu_matrix_wait(int pending, const char *file, int line) { emu_calls->matrix_wait(emu_self(), pending, file, line); }
