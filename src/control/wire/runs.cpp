#include "control/wire/runs.hpp"

#include <algorithm>

#include "control/wire/convert.hpp"

namespace tutti::wire {
namespace {

std::int32_t share_of(const sched::RankPlace& place) {
  return place.devices.empty() ? 0 : place.devices.front().share;
}

// Can it be told by its node, its devices and one share?
bool alike(const sched::RankPlace& one, const sched::RankPlace& other) {
  return one.node == other.node && one.devices.size() == other.devices.size() &&
         share_of(one) == share_of(other);
}

bool one_share(const sched::RankPlace& place) {
  return std::all_of(place.devices.begin(), place.devices.end(),
                     [&](const auto& device) { return device.share == share_of(place); });
}

Result<> add_places(const proto::PlaceRun& from, cluster::Job& to) {
  const auto left = static_cast<std::size_t>(cluster::ranks_max) - to.places.size();
  if (from.ranks() <= 0 || std::cmp_greater(from.ranks(), left) || from.devices_size() % from.ranks() != 0)
    return invalid("a run of ranks is out of range");
  const int each = from.devices_size() / from.ranks();
  for (int rank = 0; rank < from.ranks(); ++rank) {
    sched::RankPlace& place = to.places.emplace_back(sched::RankPlace{from.node(), {}});
    place.devices.reserve(static_cast<std::size_t>(each));
    for (int device = rank * each; device < (rank + 1) * each; ++device)
      place.devices.push_back({from.devices(device), from.share()});
  }
  return {};
}

Result<> add_statuses(const proto::StatusRun& from, cluster::Job& to) {
  const auto left = static_cast<std::size_t>(cluster::ranks_max) - to.ranks.size();
  if (from.ranks() <= 0 || std::cmp_greater(from.ranks(), left))
    return invalid("a run of ranks is out of range");
  auto status = from_proto(from.status());
  if (!status) return std::move(status).error();
  to.ranks.insert(to.ranks.end(), static_cast<std::size_t>(from.ranks()), *status);
  return {};
}

}  // namespace

void ranks_to_proto(const cluster::Job& from, proto::StoredJob& to) {
  // One whose devices have several shares cannot be told in runs; no shape asks for that.
  const bool in_runs = std::all_of(from.places.begin(), from.places.end(), one_share);
  proto::PlaceRun* run = nullptr;
  for (std::size_t rank = 0; rank < from.places.size(); ++rank) {
    const sched::RankPlace& place = from.places[rank];
    if (!in_runs) {
      to_proto(place, *to.add_places());
      continue;
    }
    if (rank == 0 || !alike(place, from.places[rank - 1])) {
      run = to.add_place_runs();
      run->set_node(place.node);
      run->set_share(share_of(place));
    }
    run->set_ranks(run->ranks() + 1);
    for (const auto& device : place.devices) run->add_devices(device.device);
  }
  proto::StatusRun* statuses = nullptr;
  for (std::size_t rank = 0; rank < from.ranks.size(); ++rank) {
    if (rank == 0 || from.ranks[rank] != from.ranks[rank - 1]) {
      statuses = to.add_status_runs();
      to_proto(from.ranks[rank], *statuses->mutable_status());
    }
    statuses->set_ranks(statuses->ranks() + 1);
  }
}

Result<> ranks_from_proto(const proto::StoredJob& from, cluster::Job& to) {
  for (const auto& place : from.places()) to.places.push_back(from_proto(place));
  for (const auto& rank : from.ranks()) {
    auto status = from_proto(rank);
    if (!status) return std::move(status).error();
    to.ranks.push_back(std::move(*status));
  }
  for (const auto& run : from.place_runs()) {
    if (auto added = add_places(run, to); !added) return added;
  }
  for (const auto& run : from.status_runs()) {
    if (auto added = add_statuses(run, to); !added) return added;
  }
  if (to.places.size() != to.ranks.size()) return invalid("there are more ranks than places, or fewer");
  return {};
}

}  // namespace tutti::wire
