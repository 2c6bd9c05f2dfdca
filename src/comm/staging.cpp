#include "comm/staging.hpp"

#include <chrono>

namespace tutti::comm {

Store StagingSpeeds::next() {
  ++operations_;
  const Store better = ns_per_mib_[1] < ns_per_mib_[0] ? Store::stream : Store::cached;
  const Store other = better == Store::stream ? Store::cached : Store::stream;
  const bool unknown = ns_per_mib_[0] == 0 || ns_per_mib_[1] == 0;
  if (unknown) return ns_per_mib_[1] == 0 ? Store::stream : Store::cached;
  return operations_ % try_other_every == 0 ? other : better;
}

void StagingSpeeds::took(Store store, std::size_t bytes, Clock::duration time) {
  const double now =
      std::chrono::duration<double, std::nano>(time).count() / (static_cast<double>(bytes) / (1 << 20));
  double& known = ns_per_mib_[store == Store::stream ? 1 : 0];
  // A change of the machine shows at the next try; a single late peer does not turn the choice for long.
  known = known == 0 ? now : (known + now) / 2;
}

}  // namespace tutti::comm
