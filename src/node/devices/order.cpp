#include "node/devices/order.hpp"

#include <algorithm>

namespace tutti::devices {

std::vector<cluster::Device> keep_order(const std::vector<cluster::Device>& known,
                                        const std::vector<cluster::Device>& found) {
  std::vector<cluster::Device> kept = known;
  for (cluster::Device& device : kept) device.silent = true;
  std::vector<std::size_t> fresh;
  std::size_t silent = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    if (found[at].uuid.empty()) {
      ++silent;
      continue;
    }
    const auto place = std::find_if(kept.begin(), kept.end(), [&](const cluster::Device& device) {
      return device.uuid == found[at].uuid;
    });
    if (place == kept.end()) {
      fresh.push_back(at);
    } else {
      *place = found[at];
    }
  }
  // One that was silent from the start has no name yet; it is likely to be the one at its own index.
  for (const std::size_t at : fresh) {
    const auto nameless = [](const cluster::Device& device) { return device.uuid.empty(); };
    auto place = at < kept.size() && nameless(kept[at]) ? kept.begin() + static_cast<std::ptrdiff_t>(at)
                                                        : std::find_if(kept.begin(), kept.end(), nameless);
    if (place == kept.end()) place = kept.insert(kept.end(), cluster::Device());
    *place = found[at];
  }
  const auto accounted = static_cast<std::size_t>(
      std::count_if(kept.begin(), kept.end(), [](const cluster::Device& device) { return device.silent; }));
  for (std::size_t more = accounted; more < silent; ++more) {
    kept.push_back({"unknown", Bytes(), "", -1, true});
  }
  return kept;
}

}  // namespace tutti::devices
