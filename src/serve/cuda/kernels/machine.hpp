// What only the machine can do: its instructions, its launches. emulator_test.hpp does the same on a host,
// for tests. For nvcc alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstddef>

#include "serve/cuda/kernels/kernels.hpp"

namespace tutti::serve::cuda {

using Bf16 = __nv_bfloat16;

constexpr int warp = 32;
constexpr unsigned all_lanes = ~0U;

// ---- launches

// What comes before this kernel has ended, and what it wrote is seen. Nothing that it wrote is read earlier.
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may be started beside this one.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
            const Queue& queue, Parameters... parameters) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(queue.stream);
  config.attrs = &attribute;
  config.numAttrs = queue.overlaps ? 1 : 0;
  // What is refused is found by cudaGetLastError().
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, parameters...));
}

// The memory of a block of threads that its launch asked for.
__device__ inline unsigned char* dynamic_memory() {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  return dynamic;
}

// ---- numbers

// Two as bf16, the low one first.
__device__ inline unsigned pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  unsigned word = 0;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

// Four codes of fp8 as two pairs of bf16, which holds each of them exactly.
__device__ inline uint2 widened4(unsigned codes) {
  const auto pair = [](unsigned two) {
    const __half2 halves(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), __NV_E4M3));
    const float2 numbers = __half22float2(halves);
    return pair_of(numbers.x, numbers.y);
  };
  return make_uint2(pair(codes & 0xffffU), pair(codes >> 16U));
}

// Weights that are read once: 16 bytes, past the nearest cache.
__device__ inline uint4 fetch_once(const void* data) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(data));
  return words;
}

__device__ inline float power_of_2(float x) {
  float value = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

// ---- copies into shared memory

__device__ inline unsigned shared_address(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}

// Copies 16 bytes beside what the thread does, or puts zeros there.
__device__ inline void copy_beside(unsigned to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// ---- tiles

// Four tiles of 8 × 8, each lane with the address of one row.
__device__ inline void load_tiles(unsigned (&words)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_tiles_turned(unsigned (&words)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// sums (16 × 8) += a (16 × 16) · b (16 × 8), as the lanes of a warp hold them: lane / 4 is a row of a and a
// column of b, and lane % 4 two of the sixteen, and two that are eight behind.
__device__ inline void multiply_tile(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                     unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- products of groups of four warps, which Hopper alone has

// Whether the device that is current has them, and this program the code for them.
inline bool multiplies_by_groups() {
#ifdef TUTTI_HOPPER
  int device = 0;
  int major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major == 9;
#else
  return false;
#endif
}

// A panel: rows of 64 numbers, 128 bytes, in shared memory from a multiple of 1024 bytes on; of each row the
// pieces of 16 bytes are shifted by the row: piece p of row r lies at p ^ (r % 8).
constexpr unsigned panel_row_bytes = 128;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// What copy_beside() has brought is seen by the products, once all threads have met.
__device__ inline void show_copies_to_groups() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Before the first product, when registers that it uses were written.
__device__ inline void begin_group_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_group_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// sums (64 × 64, sixteen rows a warp) (+)= a (64 × 16) · b (16 × 64), sums and a as multiply_tile() has them.
// b is of a panel: 16 of the columns of its 64 rows, or, turned, 16 of its rows.
template <bool turned>
__device__ inline void multiply_panel(float (*sums)[4], const unsigned (&a)[4], unsigned address, bool adds) {
  // Groups of eight rows are 1024 bytes apart; shifted as above.
  const unsigned long long panel =
      static_cast<unsigned long long>((address & 0x3ffffU) >> 4U) | 1ULL << 16U | 64ULL << 32U | 1ULL << 62U;
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, %38;\n}"
      : "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]), "+f"(sums[1][0]),
        "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]), "+f"(sums[2][0]), "+f"(sums[2][1]),
        "+f"(sums[2][2]), "+f"(sums[2][3]), "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]),
        "+f"(sums[3][3]), "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]), "+f"(sums[6][0]),
        "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]), "+f"(sums[7][0]), "+f"(sums[7][1]),
        "+f"(sums[7][2]), "+f"(sums[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(panel), "r"(static_cast<int>(adds)),
        "n"(turned ? 1 : 0));
}
#else
__device__ inline void show_copies_to_groups() {}
__device__ inline void begin_group_products() {}
__device__ inline void end_group_products() {}
template <bool turned>
__device__ inline void multiply_panel(float (*)[4], const unsigned (&)[4], unsigned, bool) {
  __trap();
}
#endif

}  // namespace tutti::serve::cuda
