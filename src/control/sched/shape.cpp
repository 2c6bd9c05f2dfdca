#include "control/sched/shape.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <tuple>
#include <utility>

namespace tutti::sched {
namespace {

constexpr std::array<std::string_view, levels> level_names{"cluster", "site", "pod", "rack", "nvlink"};

Result<> validate_counts(const Shape& shape) {
  const auto counts = counts_of(shape);
  if (counts.size() > rank_counts_max)
    return invalid("rank_counts has more than " + std::to_string(rank_counts_max) + " entries");
  if (counts.front() != shape.ranks)
    return invalid("rank_counts begins with " + std::to_string(counts.front()) + " and ranks is " +
                   std::to_string(shape.ranks) + ": they must be the same");
  const auto rise = std::ranges::adjacent_find(counts, std::less_equal());
  if (rise != counts.end())
    return invalid("rank_counts must descend, and " + std::to_string(rise[1]) + " comes after " +
                   std::to_string(rise[0]));
  if (counts.back() < 1) return invalid("a gang has at least one rank");
  return {};
}

}  // namespace

std::string_view name_of(Level level) { return level_names[static_cast<std::size_t>(level)]; }

Result<Level> parse_level(std::string_view text) {
  const auto found = std::find(level_names.begin(), level_names.end(), text);
  if (found == level_names.end())
    return invalid("'" + std::string(text) + "' is no part of a location")
        .remedy("the parts are site, pod, rack and nvlink; cluster is anywhere");
  return static_cast<Level>(found - level_names.begin());
}

bool ShapeOrder::operator()(const Shape& a, const Shape& b) const {
  const auto key = [](const Shape& s) {
    return std::tie(s.ranks, s.rank_counts, s.ranks_per_node, s.nodes, s.gpu_share, s.cpus, s.memory,
                    s.gpu_model, s.gpu_memory, s.within, s.avoid);
  };
  return key(a) < key(b);
}

std::span<const std::int32_t> counts_of(const Shape& shape) {
  if (shape.rank_counts.empty()) return {&shape.ranks, 1};
  return shape.rank_counts;
}

bool runs_with(const Shape& shape, std::size_t ranks) {
  return std::ranges::any_of(counts_of(shape),
                             [&](std::int32_t count) { return std::cmp_equal(count, ranks); });
}

// Rounded up, so that no node has to take more ranks of a smaller gang than of the whole one.
std::int32_t nodes_for(const Shape& shape, std::int32_t ranks) {
  const std::int64_t of_whole = std::int64_t{shape.nodes} * ranks;
  return static_cast<std::int32_t>((of_whole + shape.ranks - 1) / shape.ranks);
}

Result<> validate(const Shape& shape) {
  if (auto sound = validate_counts(shape); !sound) return sound;
  if (shape.nodes < 0 || shape.ranks_per_node < 0 || shape.gpu_share < 0 || shape.cpus < 0 ||
      shape.memory.count() < 0) {
    return invalid("a gang cannot need less than nothing");
  }
  if (shape.nodes > shape.ranks) return invalid("a gang cannot have more nodes than ranks");
  if (shape.nodes > 0 && shape.ranks_per_node > 0 &&
      static_cast<std::int64_t>(shape.nodes) * shape.ranks_per_node < shape.ranks) {
    return invalid("the ranks do not fit into that many nodes with that many ranks a node");
  }
  if (shape.gpu_share > whole_share && shape.gpu_share % whole_share != 0) {
    return invalid("more than one GPU per rank must be whole GPUs");
  }
  return {};
}

std::string format_gpus(std::int64_t share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", static_cast<double>(share) / whole_share);
  return text;
}

std::string describe_need(const Shape& shape) {
  const std::int32_t fewest = counts_of(shape).back();
  const std::int32_t nodes = nodes_for(shape, fewest);
  std::string text = std::to_string(shape.ranks) + (shape.ranks == 1 ? " rank" : " ranks");
  if (fewest < shape.ranks) text = "at least " + std::to_string(fewest) + " of " + text;
  if (nodes > 0) text += " on " + std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
  if (shape.ranks_per_node > 0) text += ", " + std::to_string(shape.ranks_per_node) + " a node";
  if (shape.gpu_share > 0) {
    text += " of " + format_gpus(shape.gpu_share) + (shape.gpu_share > whole_share ? " GPUs" : " GPU");
    if (!shape.gpu_model.empty()) text += " " + shape.gpu_model;
    if (shape.gpu_memory.count() > 0) text += " with " + format_bytes(shape.gpu_memory);
  }
  if (shape.cpus > 0) text += ", " + std::to_string(shape.cpus) + " CPUs";
  if (shape.memory.count() > 0) text += ", " + format_bytes(shape.memory);
  if (shape.within != Level::cluster) text += " within one " + std::string(name_of(shape.within));
  return text;
}

}  // namespace tutti::sched
