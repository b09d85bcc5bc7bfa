// Products of a warpgroup: four neighbouring warps, of which each brings 16 rows of A in registers,
// with B in shared memory (PTX ISA, wgmma). They run in the background: registers that they read or
// write are free after warpgroup_wait. Sums have the bits of mma.sync (ptx.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/activations.cuh"

namespace specquant::cuda {

constexpr int kGroupWarps = 4;

// Where B lies, `offset` bytes (a multiple of 16) behind an address in shared memory: octets
// (activations.cuh) of 8 rows are 128 bytes, the next octet kRows rows behind.
template <int kRows>
__device__ __forceinline__ uint64_t operand_at(uint32_t shared, uint32_t offset) {
  constexpr uint32_t kNextOctet = kRows, kNextRows = 8;  // in 16 bytes
  const uint32_t first = (shared & 0x3ffffU) >> 4 | kNextOctet << 16;
  return uint64_t{kNextRows} << 32 | (first + offset / 16);
}

// Changes how many registers each thread of the warpgroup has, at the cost or for the good of
// others of the block.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// In front of products, behind the last write to their registers.
__device__ __forceinline__ void warpgroup_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define SPECQUANT_SUMS_4(bind, c, t) bind(c[t][0]), bind(c[t][1]), bind(c[t][2]), bind(c[t][3])
#define SPECQUANT_SUMS_16(bind, c, t)                               \
  SPECQUANT_SUMS_4(bind, c, t), SPECQUANT_SUMS_4(bind, c, (t) + 1), \
      SPECQUANT_SUMS_4(bind, c, (t) + 2), SPECQUANT_SUMS_4(bind, c, (t) + 3)
#define SPECQUANT_ADDED(x) "+f"(x)
#define SPECQUANT_SET(x) "=r"(x)
#define SPECQUANT_KEPT(x) "+r"(x)

// Waits for all but the last kLeft commits, after which `sums` may be read.
template <int kLeft>
__device__ __forceinline__ void warpgroup_wait(float (&c)[4][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %16;"
               : SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 0)
               : "n"(kLeft)
               : "memory");
}
template <int kLeft>
__device__ __forceinline__ void warpgroup_wait(float (&c)[8][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %32;"
               : SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 0), SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 4)
               : "n"(kLeft)
               : "memory");
}
template <int kLeft>
__device__ __forceinline__ void warpgroup_wait(int32_t (&c)[4][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %16;"
               : SPECQUANT_SUMS_16(SPECQUANT_KEPT, c, 0)
               : "n"(kLeft)
               : "memory");
}

#define SPECQUANT_WGMMA_F32_N32(type)                                      \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}," \
               "{%16,%17,%18,%19},%20,1,1,1,0;"                            \
               : SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 0)                  \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))
#define SPECQUANT_WGMMA_F32_N64(type)                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19," \
               "%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"                        \
               "{%32,%33,%34,%35},%36,1,1,1,0;"                                           \
               : SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 0),                                \
                 SPECQUANT_SUMS_16(SPECQUANT_ADDED, c, 4)                                 \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))

// C += A·B, 64 x 32 or 64 x 64 sums, 16 columns of 16 bits; token tile by token tile, each as
// mma_f16 has them.
template <Act kAct>
__device__ __forceinline__ void warpgroup_mma(float (&c)[4][4], uint32_t a0, uint32_t a1,
                                              uint32_t a2, uint32_t a3, uint64_t b) {
  if constexpr (kAct == Act::f16) {
    SPECQUANT_WGMMA_F32_N32("f16");
  } else {
    SPECQUANT_WGMMA_F32_N32("bf16");
  }
}
template <Act kAct>
__device__ __forceinline__ void warpgroup_mma(float (&c)[8][4], uint32_t a0, uint32_t a1,
                                              uint32_t a2, uint32_t a3, uint64_t b) {
  if constexpr (kAct == Act::f16) {
    SPECQUANT_WGMMA_F32_N64("f16");
  } else {
    SPECQUANT_WGMMA_F32_N64("bf16");
  }
}

#define SPECQUANT_WGMMA_S32(type)                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32." type          \
               ".s8"                                                       \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}," \
               "{%16,%17,%18,%19},%20,0;"                                  \
               : SPECQUANT_SUMS_16(SPECQUANT_SET, c, 0)                    \
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b))

// C = A·B, 64 x 32 sums of 32 columns of bytes.
template <bool kUnsignedA>
__device__ __forceinline__ void warpgroup_mma_bytes(int32_t (&c)[4][4], uint4 a, uint64_t b) {
  if constexpr (kUnsignedA) {
    SPECQUANT_WGMMA_S32("u8");
  } else {
    SPECQUANT_WGMMA_S32("s8");
  }
}

#undef SPECQUANT_SUMS_4
#undef SPECQUANT_SUMS_16
#undef SPECQUANT_ADDED
#undef SPECQUANT_SET
#undef SPECQUANT_KEPT
#undef SPECQUANT_WGMMA_F32_N32
#undef SPECQUANT_WGMMA_F32_N64
#undef SPECQUANT_WGMMA_S32

}  // namespace specquant::cuda
