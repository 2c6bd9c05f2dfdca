// A machine that stands for a GPU in tests: the kernels are compiled for this host, and the threads of a
// block are fibers that take turns, one block after the other. What threads and warps exchange, and the
// products of tiles, are exactly what the hardware's manual says; speed, caches and races are not. The other
// side of machine.hpp. One thread at a time.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "serve/cuda/kernels/fp8.hpp"
#include "serve/cuda/kernels/kernels.hpp"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
// Blocks run one after the other: what one of them shares may be static.
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace tutti::serve::cuda {

constexpr int warp = 32;
constexpr unsigned all_lanes = ~0U;

// ---- the threads of a block

struct Exchanged {
  std::uint64_t words[4];
};

struct EmulatedWarp {
  Exchanged slots[2][warp];  // of two meetings in turn: nobody overwrites what others still read
  unsigned arrived = 0;
  unsigned live = 0;
  std::uint64_t meetings = 0;
};

struct EmulatedThread {
  dim3 index;
  EmulatedWarp* its_warp = nullptr;
  bool has_ended = false;
  ucontext_t context{};
};

class Emulator {
 public:
  static Emulator& only() {
    static Emulator emulator;
    return emulator;
  }

  void run(dim3 grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
    constexpr std::size_t alignment = 1024;
    // What nobody wrote is no number.
    memory_.assign(shared_bytes + alignment, 0xff);
    dynamic = memory_.data() + (alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment);
    while (stacks_.size() < threads) stacks_.emplace_back(stack_bytes);
    grid_size = grid;
    block_size = dim3(threads);
    kernel_ = &kernel;
    for (block.z = 0; block.z < grid.z; ++block.z)
      for (block.y = 0; block.y < grid.y; ++block.y)
        for (block.x = 0; block.x < grid.x; ++block.x) run_block(threads);
  }

  // Until all threads of the block that have not ended are here.
  void meet_block() {
    const std::uint64_t before = meetings_;
    if (++arrived_ == live_) {
      arrived_ = 0;
      ++meetings_;
    }
    while (meetings_ == before) yield();
  }

  // What each lane of the warp gave.
  template <class T>
  const Exchanged* meet_warp(const T& given) {
    static_assert(sizeof(T) <= sizeof(Exchanged));
    EmulatedWarp& own = *current->its_warp;
    const std::uint64_t before = own.meetings;
    Exchanged* const slots = own.slots[before % 2];
    std::memcpy(&slots[lane()], &given, sizeof(given));
    if (++own.arrived == own.live) {
      own.arrived = 0;
      ++own.meetings;
    }
    while (own.meetings == before) yield();
    return slots;
  }

  int lane() const { return static_cast<int>(current->index.x % warp); }

  EmulatedThread* current = nullptr;
  dim3 block;
  dim3 grid_size;
  dim3 block_size;
  unsigned char* dynamic = nullptr;

 private:
  static constexpr std::size_t stack_bytes = std::size_t{64} << 10;

  void run_block(unsigned count) {
    threads_.assign(count, {});
    warps_.assign((count + warp - 1) / warp, {});
    live_ = count;
    arrived_ = 0;
    for (unsigned at = 0; at < count; ++at) {
      EmulatedThread& thread = threads_[at];
      thread.index = dim3(at, 0, 0);
      thread.its_warp = &warps_[at / warp];
      ++thread.its_warp->live;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = stacks_[at].data();
      thread.context.uc_stack.ss_size = stack_bytes;
      thread.context.uc_link = nullptr;
      makecontext(&thread.context, &Emulator::enter, 0);
    }
    next_ = 0;
    current = &threads_[0];
    swapcontext(&home_, &current->context);
  }

  static void enter() {
    Emulator& emulator = only();
    (*emulator.kernel_)();
    emulator.end();
  }

  void end() {
    current->has_ended = true;
    EmulatedWarp& own = *current->its_warp;
    if (--live_ == 0) {
      setcontext(&home_);
      return;
    }
    if (arrived_ == live_) {
      arrived_ = 0;
      ++meetings_;
    }
    if (--own.live > 0 && own.arrived == own.live) {
      own.arrived = 0;
      ++own.meetings;
    }
    current = pick();
    setcontext(&current->context);
  }

  EmulatedThread* pick() {
    do {
      next_ = (next_ + 1) % threads_.size();
    } while (threads_[next_].has_ended);
    return &threads_[next_];
  }

  void yield() {
    EmulatedThread* const before = current;
    current = pick();
    if (current == before) {
      std::fputs("a kernel waits for threads that never come\n", stderr);
      std::abort();
    }
    swapcontext(&before->context, &current->context);
  }

  std::vector<unsigned char> memory_;
  std::vector<std::vector<char>> stacks_;
  std::vector<EmulatedThread> threads_;
  std::vector<EmulatedWarp> warps_;
  std::size_t next_ = 0;
  unsigned live_ = 0;
  unsigned arrived_ = 0;
  std::uint64_t meetings_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  ucontext_t home_{};
};

template <class T>
T taken(const Exchanged* slots, int lane) {
  T value;
  std::memcpy(&value, &slots[lane], sizeof(value));
  return value;
}

}  // namespace tutti::serve::cuda

#define threadIdx (::tutti::serve::cuda::Emulator::only().current->index)
#define blockIdx (::tutti::serve::cuda::Emulator::only().block)
#define blockDim (::tutti::serve::cuda::Emulator::only().block_size)
#define gridDim (::tutti::serve::cuda::Emulator::only().grid_size)

// ---- what CUDA gives every kernel

inline void __syncthreads() { tutti::serve::cuda::Emulator::only().meet_block(); }
inline void __syncwarp() { tutti::serve::cuda::Emulator::only().meet_warp(0); }
inline void __threadfence() {}
template <class T>
T __shfl_xor_sync(unsigned, T value, int step) {
  auto& emulator = tutti::serve::cuda::Emulator::only();
  return tutti::serve::cuda::taken<T>(emulator.meet_warp(value), emulator.lane() ^ step);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int step) {
  auto& emulator = tutti::serve::cuda::Emulator::only();
  const int from = emulator.lane() - step;
  return tutti::serve::cuda::taken<T>(emulator.meet_warp(value), from < 0 ? emulator.lane() : from);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return tutti::serve::cuda::taken<T>(tutti::serve::cuda::Emulator::only().meet_warp(value), lane);
}
inline unsigned __ballot_sync(unsigned, bool is_true) {
  const auto* const slots = tutti::serve::cuda::Emulator::only().meet_warp(is_true);
  unsigned ballot = 0;
  for (int lane = 0; lane < tutti::serve::cuda::warp; ++lane)
    ballot |= static_cast<unsigned>(tutti::serve::cuda::taken<bool>(slots, lane)) << lane;
  return ballot;
}
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
template <class T>
T __ldcg(const T* data) {
  return *data;
}
inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline unsigned long long __double2ull_rn(double x) {
  return static_cast<unsigned long long>(std::nearbyint(x));
}
inline unsigned long long __double2ull_ru(double x) { return static_cast<unsigned long long>(std::ceil(x)); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32U | low;
  unsigned chosen = 0;
  for (unsigned at = 0; at < 4; ++at)
    chosen |= static_cast<unsigned>(both >> 8 * (selector >> 4 * at & 7U) & 0xffU) << 8 * at;
  return chosen;
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  return std::max<std::common_type_t<A, B>>(a, b);
}
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  return std::min<std::common_type_t<A, B>>(a, b);
}

enum cudaError_t { cudaSuccess };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline cudaError_t cudaGetDevice(int*) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 5 : 227 << 10;
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) {
  return cudaSuccess;
}

namespace tutti::serve::cuda {

// ---- what machine.hpp has

struct Bf16 {
  std::uint16_t bits;  // nothing at first, as in shared memory

  Bf16() = default;
  Bf16(float value) {
    const unsigned all = __float_as_uint(value);
    const bool is_number = (all & 0x7fffffffU) <= 0x7f800000U;
    bits = static_cast<std::uint16_t>(is_number ? (all + 0x7fffU + (all >> 16U & 1U)) >> 16U : 0x7fffU);
  }
  operator float() const { return __uint_as_float(static_cast<unsigned>(bits) << 16U); }
};

inline void wait_for_earlier() {}
inline void let_next_start() {}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
            const Queue&, Parameters... parameters) {
  Emulator::only().run(grid, threads, shared_bytes, [&] { kernel(parameters...); });
}

inline unsigned char* dynamic_memory() { return Emulator::only().dynamic; }

inline unsigned pair_of(float low, float high) {
  return Bf16(low).bits | static_cast<unsigned>(Bf16(high).bits) << 16U;
}

inline uint2 widened4(unsigned codes) {
  const auto number = [&](unsigned at) { return fp8_to_float(static_cast<std::uint8_t>(codes >> 8U * at)); };
  return make_uint2(pair_of(number(0), number(1)), pair_of(number(2), number(3)));
}

inline uint4 fetch_once(const void* data) { return *static_cast<const uint4*>(data); }
inline float power_of_2(float x) { return std::exp2(x); }

inline unsigned shared_address(const void* data) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(data) - dynamic_memory());
}
inline void copy_beside(unsigned to, const void* from, bool is_there) {
  constexpr std::size_t bytes = 16;
  if (is_there) {
    std::memcpy(dynamic_memory() + to, from, bytes);
  } else {
    std::memset(dynamic_memory() + to, 0, bytes);
  }
}
inline void commit_copies() {}
inline void wait_for_copies() {}

// The number at a row and column of tile `tile`, of the rows whose addresses the lanes gave.
inline unsigned tile_number(const Exchanged* slots, int tile, int row, int column) {
  const auto address = taken<unsigned>(slots, tile * 8 + row);
  std::uint16_t number = 0;
  std::memcpy(&number, dynamic_memory() + address + column * static_cast<int>(sizeof(number)),
              sizeof(number));
  return number;
}
inline void load_tiles(unsigned (&words)[4], unsigned address) {
  const Exchanged* const slots = Emulator::only().meet_warp(address);
  const int lane = Emulator::only().lane();
  for (int tile = 0; tile < 4; ++tile) {
    words[tile] = tile_number(slots, tile, lane / 4, lane % 4 * 2) |
                  tile_number(slots, tile, lane / 4, lane % 4 * 2 + 1) << 16U;
  }
}
inline void load_tiles_turned(unsigned (&words)[4], unsigned address) {
  const Exchanged* const slots = Emulator::only().meet_warp(address);
  const int lane = Emulator::only().lane();
  for (int tile = 0; tile < 4; ++tile) {
    words[tile] = tile_number(slots, tile, lane % 4 * 2, lane / 4) |
                  tile_number(slots, tile, lane % 4 * 2 + 1, lane / 4) << 16U;
  }
}

struct TileWords {
  unsigned a[4];
  unsigned b[2];
};
inline void multiply_tile(float (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                          unsigned b1) {
  const Exchanged* const slots = Emulator::only().meet_warp(TileWords{{a0, a1, a2, a3}, {b0, b1}});
  const auto half = [](unsigned word, int which) {
    return __uint_as_float(which == 0 ? word << 16U : word & 0xffff0000U);
  };
  const int lane = Emulator::only().lane();
  for (int at = 0; at < 4; ++at) {
    const int row = lane / 4 + at / 2 * 8;
    const int column = lane % 4 * 2 + at % 2;
    float sum = 0;
    for (int inner = 0; inner < 16; ++inner) {
      const auto rows = taken<TileWords>(slots, row % 8 * 4 + inner % 8 / 2);
      const auto columns = taken<TileWords>(slots, column * 4 + inner % 8 / 2);
      sum += half(rows.a[row / 8 + inner / 8 * 2], inner % 2) * half(columns.b[inner / 8], inner % 2);
    }
    sums[at] += sum;
  }
}

extern bool emulates_groups;  // the test's: whether the machine has products of groups of warps
inline bool multiplies_by_groups() { return emulates_groups; }
constexpr unsigned panel_row_bytes = 128;
inline void show_copies_to_groups() {}
inline void begin_group_products() {}
inline void end_group_products() {}
template <bool turned>
void multiply_panel(float (*sums)[4], const unsigned (&a)[4], unsigned address, bool adds) {
  struct Words {
    unsigned a[4];
  };
  const Exchanged* const slots = Emulator::only().meet_warp(Words{{a[0], a[1], a[2], a[3]}});
  const auto half = [](unsigned word, int which) {
    return __uint_as_float(which == 0 ? word << 16U : word & 0xffff0000U);
  };
  const int lane = Emulator::only().lane();
  for (int at = 0; at < 32; ++at) {
    const int row = lane / 4 + at % 4 / 2 * 8;
    const auto column = static_cast<unsigned>(at / 4 * 8 + lane % 4 * 2 + at % 2);
    float sum = 0;
    for (int inner = 0; inner < 16; ++inner) {
      const auto rows = taken<Words>(slots, row % 8 * 4 + inner % 8 / 2);
      const auto k = static_cast<unsigned>(inner);
      const unsigned from =
          address + (turned ? k * panel_row_bytes + column * 2 : column * panel_row_bytes + k * 2);
      Bf16 number;
      std::memcpy(&number, dynamic_memory() + (from ^ (from >> 7U & 7U) << 4U), sizeof(number));
      sum += half(rows.a[row / 8 + inner / 8 * 2], inner % 2) * static_cast<float>(number);
    }
    sums[at / 4][at % 4] = (adds ? sums[at / 4][at % 4] : 0.0F) + sum;
  }
}

}  // namespace tutti::serve::cuda
