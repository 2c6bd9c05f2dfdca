// Which sample is seen when: each epoch is another permutation of all samples. Nothing is stored, so that any
// rank of any mesh can ask for any index and they all agree, also after a restart on other servers. A value;
// any thread.
#pragma once

#include <cstdint>

namespace tutti::dataset {

struct Order {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;  // at least 1

  // `index` counts all samples that were ever drawn: index / samples is the epoch.
  std::uint64_t sample(std::uint64_t index) const;
};

}  // namespace tutti::dataset
