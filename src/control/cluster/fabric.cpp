#include "control/cluster/fabric.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace tutti::cluster {
namespace {

// One measured value of the links of each node, in the order of the value.
class ByNode {
 public:
  template <class Value>
  ByNode(const Fabric& fabric, Value value) {
    for (const auto& [ends, link] : fabric) {
      Row& from = rows_[link.from];
      Row& to = rows_[link.to];
      from.entries.push_back({value(link), &to});
      to.entries.push_back({value(link), &from});
    }
    for (auto& [node, row] : rows_) {
      std::sort(row.entries.begin(), row.entries.end(),
                [](const Entry& a, const Entry& b) { return a.value < b.value; });
    }
  }

  // The median of what touches either end but does not join the two; nothing if that is too little to judge.
  // The two sorted rows are walked side by side: a large fabric has many links, each with many neighbours.
  std::optional<double> median_around(const Link& link) const {
    const Row& left = rows_.at(link.from);
    const Row& right = rows_.at(link.to);
    const auto joining = std::count_if(left.entries.begin(), left.entries.end(),
                                       [&](const Entry& entry) { return entry.peer == &right; });
    // Those stand in both rows.
    const std::size_t count =
        left.entries.size() + right.entries.size() - 2 * static_cast<std::size_t>(joining);
    if (count < slow_neighbours_min) return std::nullopt;
    auto at_left = left.entries.begin();
    auto at_right = right.entries.begin();
    double before = 0;
    double value = 0;
    for (std::size_t taken = 0; taken <= count / 2; ++taken) {
      while (at_left != left.entries.end() && at_left->peer == &right) ++at_left;
      while (at_right != right.entries.end() && at_right->peer == &left) ++at_right;
      const bool take_left = at_right == right.entries.end() ||
                             (at_left != left.entries.end() && at_left->value <= at_right->value);
      before = value;
      value = (take_left ? at_left++ : at_right++)->value;
    }
    return count % 2 == 0 ? (before + value) / 2 : value;
  }

 private:
  struct Row;
  struct Entry {
    double value = 0;
    const Row* peer = nullptr;  // told apart, never ordered
  };
  struct Row {
    std::vector<Entry> entries;
  };

  std::map<NodeName, Row> rows_;
};

double bandwidth_of(const Link& link) { return static_cast<double>(link.bandwidth.count()); }
double latency_of(const Link& link) { return static_cast<double>(link.latency.count()); }

Result<> check(const Link& link, const std::set<NodeName>& nodes) {
  for (const NodeName& name : {link.from, link.to}) {
    if (!nodes.contains(name))
      return invalid("there is no node '" + name + "'").remedy("`tutti nodes` lists them");
  }
  if (link.from == link.to)
    return invalid("a link joins two different nodes, not " + link.from + " and itself");
  if (link.latency <= Duration::zero() || link.latency > link_latency_max)
    return invalid("the latency of a link is above 0 and at most " + format_duration(link_latency_max));
  if (link.bandwidth <= Bytes(0) || link.bandwidth > link_bandwidth_max)
    return invalid("the bandwidth of a link is above 0 and at most 1000000 GB/s");
  return {};
}

}  // namespace

std::string SlowLink::text() const {
  std::string text;
  char number[64];
  if (bandwidth_ratio < slow_bandwidth_factor) {
    std::snprintf(number, sizeof number, "%.0f%% of its neighbours",
                  std::floor(bandwidth_ratio * 100 + 1e-9));  // never as much as the threshold itself
    text = number;
  }
  if (latency_ratio > slow_latency_factor) {
    std::snprintf(number, sizeof number, "latency %.1f times its neighbours'", latency_ratio);
    text += (text.empty() ? "" : ", ") + std::string(number);
  }
  return text;
}

std::map<std::pair<NodeName, NodeName>, SlowLink> slow_links(const Fabric& fabric) {
  const ByNode bandwidths(fabric, bandwidth_of);
  const ByNode latencies(fabric, latency_of);
  std::map<std::pair<NodeName, NodeName>, SlowLink> slow;
  for (const auto& [ends, link] : fabric) {
    const auto bandwidth = bandwidths.median_around(link);
    const auto latency = latencies.median_around(link);
    if (!bandwidth || !latency) continue;
    const SlowLink compared{bandwidth_of(link) / *bandwidth, latency_of(link) / *latency};
    if (compared.bandwidth_ratio < slow_bandwidth_factor || compared.latency_ratio > slow_latency_factor)
      slow.emplace(ends, compared);
  }
  return slow;
}

Result<Fabric> make_fabric(const std::vector<Link>& links, const std::set<NodeName>& nodes) {
  if (links.size() > fabric_links_max) {
    return invalid("a fabric has at most " + std::to_string(fabric_links_max) + " links, these are " +
                   std::to_string(links.size()));
  }
  Fabric fabric;
  for (const Link& link : links) {
    if (auto sound = check(link, nodes); !sound)
      return std::move(sound).error().within("link from '" + link.from + "' to '" + link.to + "'");
    if (!fabric.emplace(std::pair(link.from, link.to), link).second)
      return invalid("the link from " + link.from + " to " + link.to + " is there twice");
  }
  return fabric;
}

Fabric only_between(const Fabric& fabric, const std::set<NodeName>& nodes) {
  Fabric kept = fabric;
  std::erase_if(kept, [&](const auto& entry) {
    return !nodes.contains(entry.first.first) || !nodes.contains(entry.first.second);
  });
  return kept;
}

}  // namespace tutti::cluster
