// fgd, fragmentation gradient descent (Weng and others, ATC '23). Like fifo, and a gang that fits on one node
// goes where the fragmentation grows the least: the free share of devices that the shapes of the mix,
// weighted by how often they are seen, could not use. Assumes that what comes is like what came. Scores are
// rounded, as in the published system: without that, ties that are none spread gangs over more nodes.
#include <cmath>
#include <limits>
#include <map>

#include "control/sched/policies.hpp"

namespace tutti::sched {
namespace {

constexpr double score_step = 80;

class LeastFragmentation final : public NodeChoice {
 public:
  LeastFragmentation(const Mix& mix, const Room& room) {
    double seen = 0;
    for (const auto& [shape, often] : mix.shapes) seen += often;
    for (const auto& [shape, often] : mix.shapes) {
      if (shape.gpu_share > 0) classes_.push_back({room.need(shape), shape.ranks, often / seen});
    }
  }

  std::optional<NodeIndex> choose(const Room& room, const Need& need, std::int32_t ranks) const override {
    auto& known = scores_[{need.devices, need.share, need.cpus, need.memory, need.kinds, ranks}];
    known.resize(static_cast<std::size_t>(room.nodes()));
    std::optional<NodeIndex> best;
    double best_score = std::numeric_limits<double>::max();
    for (NodeIndex node = 0; node < room.nodes(); ++node) {
      if (room.capacity(need, node, ranks) < ranks) continue;
      Score& score = known[static_cast<std::size_t>(node)];
      // Only a node that has changed is looked at anew.
      if (score.version != room.version(node))
        score = {room.version(node), std::round(growth(room, need, node, ranks) / score_step)};
      if (score.growth < best_score) best = node, best_score = score.growth;
    }
    return best;
  }

  void devices(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks,
               std::vector<std::int16_t>& devices) const override {
    if (need.devices == 0 || need.whole()) return room.choose_devices(need, node, ranks, devices);
    Holes holes = holes_of(room, node);
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      devices.push_back(static_cast<std::int16_t>(take_share(room, need, node, holes)));
  }

 private:
  struct Class {
    Need need;
    std::int32_t ranks = 1;
    double often = 0;
  };
  struct Score {
    std::uint32_t version = std::numeric_limits<std::uint32_t>::max();
    double growth = 0;
  };
  struct Holes {
    std::vector<std::int16_t> shares;
    std::int64_t cpus = 0;
    std::int64_t memory = 0;
  };
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int64_t, Kinds, std::int32_t>;

  static Holes holes_of(const Room& room, NodeIndex node) {
    const auto shares = room.shares_free(node);
    return {{shares.begin(), shares.end()}, room.cpus_free(node), room.memory_free(node)};
  }

  // The free share that a class cannot use: all of it if the class does not fit here at all.
  static double fragment(const Room& room, NodeIndex node, const Class& wanted, const Holes& holes) {
    double all = 0;
    double useless = 0;
    std::int32_t usable = 0;
    for (std::size_t device = 0; device < holes.shares.size(); ++device) {
      const bool of_kind =
          (wanted.need.kinds >> room.kind_of(node, static_cast<std::int32_t>(device)) & 1) != 0;
      const std::int16_t share = holes.shares[device];
      all += share;
      if (of_kind && share >= wanted.need.share) {
        ++usable;
      } else {
        useless += share;
      }
    }
    const bool fits =
        usable >= wanted.need.devices && holes.cpus >= wanted.need.cpus && holes.memory >= wanted.need.memory;
    return fits ? useless : all;
  }

  double fragmentation(const Room& room, NodeIndex node, const Holes& holes) const {
    double sum = 0;
    for (const Class& wanted : classes_) sum += wanted.often * fragment(room, node, wanted, holes);
    return sum;
  }

  std::int32_t take_share(const Room& room, const Need& need, NodeIndex node, Holes& holes) const {
    std::int32_t best = -1;
    double best_sum = std::numeric_limits<double>::max();
    for (std::size_t device = 0; device < holes.shares.size(); ++device) {
      const auto index = static_cast<std::int32_t>(device);
      if (holes.shares[device] < need.share || (need.kinds >> room.kind_of(node, index) & 1) == 0) continue;
      holes.shares[device] = static_cast<std::int16_t>(holes.shares[device] - need.share);
      const double sum = fragmentation(room, node, holes);
      holes.shares[device] = static_cast<std::int16_t>(holes.shares[device] + need.share);
      if (sum < best_sum) best = index, best_sum = sum;
    }
    TUTTI_CHECK(best >= 0);
    std::int16_t& taken = holes.shares[static_cast<std::size_t>(best)];
    taken = static_cast<std::int16_t>(taken - need.share);
    return best;
  }

  double growth(const Room& room, const Need& need, NodeIndex node, std::int32_t ranks) const {
    Holes holes = holes_of(room, node);
    const double before = fragmentation(room, node, holes);
    holes.cpus -= std::int64_t{need.cpus} * ranks;
    holes.memory -= need.memory * ranks;
    if (need.devices > 0 && need.whole()) {
      std::vector<std::int16_t> taken;
      room.choose_devices(need, node, ranks, taken);
      for (const std::int16_t device : taken) holes.shares[static_cast<std::size_t>(device)] = 0;
    } else if (need.devices > 0) {
      for (std::int32_t rank = 0; rank < ranks; ++rank) take_share(room, need, node, holes);
    }
    return fragmentation(room, node, holes) - before;
  }

  std::vector<Class> classes_;
  mutable std::map<Key, std::vector<Score>> scores_;
};

}  // namespace

Plan schedule_fgd(const Snapshot& snapshot, Instant now) {
  const LeastFragmentation least(*snapshot.mix, snapshot.room);
  return run_pass(snapshot, now, {.order = as_they_came, .choice = &least});
}

}  // namespace tutti::sched
