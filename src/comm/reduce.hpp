// The arithmetic of collectives, at the speed of the machine: kernels for AVX-512, AVX2 and any CPU, chosen
// once at run time. Pure functions of their arguments, any thread.
//
// The order is fixed: ((source 0 . source 1) . source 2) …, element by element, so a result does not depend
// on who computed it or how the data was cut. f16 and bf16 are added up in f32 and rounded once, at the end.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "comm/types.hpp"

namespace tutti::comm {

// Where the result goes next. `stream` writes around the caches: right for what is larger than they are and
// will not be read again soon.
enum class Store { cached, stream };

struct Reduce {
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  // `average` divides by this when it is not 0; a partial result leaves it 0 and is the sum.
  std::size_t divide_by = 0;
};

// target[i] = source 0 [i] . source 1 [i] . … for `count` elements, in every target. A target may be one of
// the sources, but not overlap one otherwise. One source is a copy (divided, for an average).
void reduce(const Reduce& how, std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
            std::size_t count, Store store = Store::cached);
inline void reduce(const Reduce& how, std::byte* target, std::span<const std::byte* const> sources,
                   std::size_t count, Store store = Store::cached) {
  reduce(how, std::span<std::byte* const>(&target, 1), sources, count, store);
}

// memcpy, or the same around the caches.
void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes, Store store = Store::cached);

// Which kernels run here: "avx512", "avx2" or "scalar".
std::string_view instruction_set();

}  // namespace tutti::comm
