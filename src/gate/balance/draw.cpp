#include "gate/balance/draw.hpp"

#include <algorithm>

namespace tutti::gate {

bool Draw::take(std::int32_t share) {
  owed_ += std::clamp(share, 0, whole_share);
  if (owed_ < whole_share) return false;
  owed_ -= whole_share;
  return true;
}

}  // namespace tutti::gate
