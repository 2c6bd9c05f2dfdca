#include "learn/recipe/choose.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/units.hpp"

namespace tutti::recipe {
namespace {

bool fits_host(const Memory& memory, const Ground& ground) {
  return ground.host_memory == 0 || memory.on_host <= ground.host_memory;
}

bool fits(const Recipe& recipe, const model::Shape& shape, const plan::Mesh& mesh, const Ground& ground) {
  if (ground.memory == 0 && ground.host_memory == 0) return true;
  const Memory memory = memory_of(recipe, shape, mesh, ground.place);
  return (ground.memory == 0 || memory.total() <= ground.memory) && fits_host(memory, ground);
}

// All meshes of so many ranks that the recipe allows, in the order of the rule.
std::vector<plan::Mesh> candidates(const Recipe& recipe, const model::Shape& shape, const Ground& ground) {
  std::vector<plan::Mesh> all;
  for (int model = 1; model <= ground.ranks; ++model) {
    if (ground.ranks % model != 0) continue;
    for (int pipeline = 1; pipeline <= model; ++pipeline) {
      const plan::Mesh mesh{.data = ground.ranks / model, .tensor = model / pipeline, .pipeline = pipeline};
      if (model % pipeline == 0 && arrange(ground, mesh.tensor) && check_mesh(recipe, shape, mesh)) {
        all.push_back(mesh);
      }
    }
  }
  return all;
}

// Where a layer would be cut across nodes.
Error straddles(const plan::Mesh& mesh, const Ground& ground) {
  std::string counts;
  for (const int ranks : ground.nodes) {
    if (counts.size() > 64) break;
    counts += (counts.empty() ? "" : ", ") + std::to_string(ranks);
  }
  return invalid("tp" + std::to_string(mesh.tensor) + " needs groups of " + std::to_string(mesh.tensor) +
                 " ranks on one node, and the nodes have " + counts)
      .within("mesh " + mesh.text())
      .remedy("fewer slices, or a number of ranks that fills nodes evenly");
}

Error does_not_fit(const Recipe& recipe, const model::Shape& shape, const plan::Mesh& mesh,
                   const Ground& ground) {
  const Memory memory = memory_of(recipe, shape, mesh, ground.place);
  const auto has = [](std::int64_t bytes) { return " and has " + format_bytes(Bytes(bytes)); };
  Error error = (fits_host(memory, ground) ? invalid("a rank needs " + format_bytes(Bytes(memory.total())) +
                                                     " (" + memory.text() + ")" + has(ground.memory))
                                           : invalid("a rank needs " + format_bytes(Bytes(memory.on_host)) +
                                                     " of its host's memory for the copy of a checkpoint" +
                                                     has(ground.host_memory)))
                    .within("mesh " + mesh.text());
  // What would help: another way to cut, sharding, computing again.
  for (const bool again : {false, true}) {
    for (const std::int64_t zero : {recipe.zero, std::int64_t{1}, std::int64_t{3}}) {
      Recipe other = recipe;
      other.zero = zero;
      other.recompute = recipe.recompute || again;
      for (const plan::Mesh& candidate : candidates(other, shape, ground)) {
        if (!fits(other, shape, candidate, ground)) continue;
        return std::move(error).remedy(
            "this would fit: parallel: " + candidate.text() + ", zero: " + std::to_string(zero) +
            (other.recompute ? ", recompute: true" : "") + " (" +
            format_bytes(Bytes(memory_of(other, shape, candidate, ground.place).total())) + " a rank)");
      }
    }
  }
  return std::move(error).remedy(
      "no mesh of " + std::to_string(ground.ranks) +
      " ranks would fit: more ranks, a smaller microbatch or a smaller model would");
}

}  // namespace

std::optional<Arrangement> arrange(const Ground& ground, int slices) {
  const auto whole_groups = [&](int ranks) { return ranks % slices == 0; };
  if (slices == 1 || ground.nodes.empty()) return Arrangement();
  if (ground.placed) {
    if (!std::all_of(ground.nodes.begin(), ground.nodes.end(), whole_groups)) return std::nullopt;
    return Arrangement();
  }
  const int largest = *std::max_element(ground.nodes.begin(), ground.nodes.end());
  const std::int64_t room = std::accumulate(ground.nodes.begin(), ground.nodes.end(), std::int64_t{0});
  for (int each = largest; each >= slices; --each) {
    if (!whole_groups(each) || ground.ranks % each != 0) continue;
    const auto can = [&](int node) { return node >= each; };
    // A cluster that is too small today is taken for one of more such nodes: the job waits for them.
    const auto there = std::count_if(ground.nodes.begin(), ground.nodes.end(), can);
    if (room < ground.ranks || there >= ground.ranks / each) return Arrangement{ground.ranks / each, each};
  }
  // Nodes of several sizes that are filled one after the other.
  if (std::all_of(ground.nodes.begin(), ground.nodes.end(), whole_groups) && whole_groups(ground.ranks))
    return Arrangement();
  return std::nullopt;
}

std::int64_t memory_of_each(const std::vector<std::int64_t>& hosts, int ranks) {
  if (hosts.empty() || *std::min_element(hosts.begin(), hosts.end()) <= 0) return 0;
  const auto enough = [&](std::int64_t each) {
    std::int64_t held = 0;
    for (const std::int64_t host : hosts) held += host / each;
    return held >= ranks;
  };
  std::int64_t least = 0;
  std::int64_t too_much = *std::max_element(hosts.begin(), hosts.end()) + 1;
  while (too_much - least > 1) {
    const std::int64_t middle = least + (too_much - least) / 2;
    (enough(middle) ? least : too_much) = middle;
  }
  return least;
}

Result<plan::Mesh> choose_mesh(const Recipe& given, const model::Shape& shape, const Ground& ground) {
  const Recipe recipe = resolved(given, ground.place);
  std::optional<plan::Mesh> named;
  if (recipe.parallel != "auto") {
    auto parsed = plan::parse_mesh(recipe.parallel);
    if (!parsed) return parsed;
    named = *parsed;
    const int model = parsed->tensor * parsed->pipeline;
    if (ground.ranks > parsed->size()) {
      return invalid("mesh " + parsed->text() + " has " + std::to_string(parsed->size()) + " ranks, not " +
                     std::to_string(ground.ranks));
    }
    // A gang that came back smaller has fewer replicas.
    if (ground.ranks % model == 0) {
      const plan::Mesh mesh{
          .data = ground.ranks / model, .tensor = parsed->tensor, .pipeline = parsed->pipeline};
      auto fine = check_mesh(recipe, shape, mesh);
      if (fine && !arrange(ground, mesh.tensor)) fine = straddles(mesh, ground);
      if (fine && fits(recipe, shape, mesh, ground)) return mesh;
      if (fine) return does_not_fit(recipe, shape, mesh, ground);
      // Ranks that have their places already do their best with them.
      if (mesh == *parsed && !ground.placed) return std::move(fine).error();
    }
  }
  const auto all = candidates(recipe, shape, ground);
  for (const plan::Mesh& mesh : all) {
    if (fits(recipe, shape, mesh, ground)) return mesh;
  }
  if (!all.empty()) return does_not_fit(recipe, shape, all.back(), ground);
  auto why = check_mesh(recipe, shape, {.data = ground.ranks});
  return (why ? invalid("no mesh of " + std::to_string(ground.ranks) + " ranks suits this model and batch")
              : std::move(why).error())
      .remedy("another number of ranks, or a batch that the replicas can share evenly");
}

std::vector<int> rank_counts(const Recipe& recipe, const model::Shape& shape, const Ground& ground) {
  std::vector<int> counts;
  std::optional<Arrangement> first;
  for (int ranks = ground.ranks; ranks > 0; --ranks) {
    Ground smaller = ground;
    smaller.ranks = ranks;
    const auto mesh = choose_mesh(recipe, shape, smaller);
    if (!mesh) continue;
    const auto arranged = arrange(smaller, mesh->tensor);
    if (!arranged) continue;
    if (!first) first = arranged;
    // What holds a group of slices holds single ranks too, so many to a node.
    const bool alike = first->ranks_per_node == 0
                           ? *arranged == Arrangement()
                           : ranks % first->ranks_per_node == 0 && first->ranks_per_node % mesh->tensor == 0;
    if (alike) counts.push_back(ranks);
  }
  return counts;
}

}  // namespace tutti::recipe
