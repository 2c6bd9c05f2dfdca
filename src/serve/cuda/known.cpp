// What a model knows of tokens: the numbers that its head reads, in f32 whatever the head reads them in.
#include <algorithm>

#include "serve/cuda/forward.hpp"

namespace tutti::serve::cuda {

void Forward::sum_known(std::int64_t nth, std::int64_t first, std::int64_t count, const Queue& queue) {
  double* const sums = scratch_.known_sums + nth * sizes_.hidden;
  for (std::int64_t done = 0; done < count; done += known_rows) {
    const std::int64_t rows = std::min(known_rows, count - done);
    norm_rows({.type = Type::f32,
               .count = rows,
               .stride = sizes_.hidden,
               .norm = norm_of(weights_.norm),
               .stream = scratch_.stream + (first + done) * sizes_.hidden,
               .out = scratch_.known},
              queue);
    sum_rows({.count = rows, .stride = sizes_.hidden, .rows = scratch_.known, .sums = sums, .adds = done > 0},
             queue);
  }
}

}  // namespace tutti::serve::cuda
