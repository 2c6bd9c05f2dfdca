#include "lab/replay/fleet.hpp"

#include "base/config/document.hpp"
#include "base/config/flags.hpp"
#include "base/text.hpp"
#include "lab/replay/csv.hpp"

namespace tutti::replay {
namespace {

constexpr std::int64_t node_gpus_max = 64;

Result<FleetNode> node_from(const Csv& csv, std::size_t row) {
  const auto cell = [&](const char* name) -> std::string {
    const int column = csv.column(name);
    return column < 0 ? "" : csv.rows[row][static_cast<std::size_t>(column)];
  };
  const auto amount = [&](const char* name, double otherwise) -> Result<double> {
    const int column = csv.column(name);
    if (column < 0) return otherwise;
    return number(csv, row, column, 0);
  };
  FleetNode node;
  node.name = cell(csv.column("name") >= 0 ? "name" : "sn");
  node.location = cell("location");
  if (node.name.empty()) return csv.error(row, "a node needs a name");
  const auto gpus = amount(csv.column("gpus") >= 0 ? "gpus" : "gpu", 0);
  const auto cpus = csv.column("cpu_milli") >= 0 ? amount("cpu_milli", 0) : amount("cpus", 1024);
  const auto memory = amount("memory_mib", 1 << 20);
  for (const auto* value : {&gpus, &cpus, &memory}) {
    if (!*value) return value->error();
  }
  if (*gpus > node_gpus_max) return csv.error(row, "a node has at most 64 GPUs");
  node.inventory.devices.assign(static_cast<std::size_t>(*gpus), {cell("model"), gib(80), "", -1});
  node.inventory.cpus = static_cast<std::int32_t>(std::min(*cpus, 1e9));
  node.inventory.memory = Bytes(static_cast<std::int64_t>(std::min(*memory, 1e9)) << 20);
  return node;
}

Result<Fleet> from_csv(const std::string& file) {
  auto csv = read_csv(file);
  if (!csv) return std::move(csv).error();
  if (csv->column("sn") < 0) {
    if (auto named = csv->need("name"); !named) return std::move(named).error();
  }
  if (std::cmp_greater(csv->rows.size(), fleet_nodes_max))
    return invalid("has more than 100000 nodes").within(file);
  Fleet fleet;
  for (std::size_t row = 0; row < csv->rows.size(); ++row) {
    auto node = node_from(*csv, row);
    if (!node) return std::move(node).error();
    fleet.push_back(std::move(*node));
  }
  if (fleet.empty()) return invalid("has no nodes").within(file);
  return fleet;
}

Result<FleetGroup> group_from(const config::Document& document) {
  FleetGroup group;
  config::Flags keys("cluster", "", "");
  keys.add("nodes", group.nodes, "", {1, fleet_nodes_max});
  keys.add("gpus", group.gpus, "", {0, node_gpus_max});
  keys.add("model", group.model, "");
  keys.add("cpus", group.cpus, "", {0, 1 << 16});
  keys.add("memory", group.memory, "");
  keys.add("nodes_per_rack", group.nodes_per_rack, "", {1, fleet_nodes_max});
  keys.add("racks_per_pod", group.racks_per_pod, "", {1, fleet_nodes_max});
  keys.add("pods_per_site", group.pods_per_site, "", {1, fleet_nodes_max});
  if (auto read = keys.read(document); !read) return std::move(read).error();
  return group;
}

Result<Fleet> from_yaml(const std::string& file) {
  auto document = config::read_document(file);
  if (!document) return std::move(document).error();
  std::vector<config::Document> parts;
  if (const config::Value* groups = document->root.find("groups")) {
    if (document->root.items.size() != 1)
      return document->error(document->root.line, "groups", "stands alone: its parts have the other keys");
    for (const config::Value& item : groups->items) {
      if (item.kind != config::Value::Kind::mapping)
        return document->error(item.line, "groups", "each part is a mapping: nodes, gpus, model …");
      parts.push_back({document->name, item});
    }
  } else {
    parts.push_back(*document);
  }
  Fleet fleet;
  for (const config::Document& part : parts) {
    auto group = group_from(part);
    if (!group) return std::move(group).error();
    if (std::cmp_greater(fleet.size() + static_cast<std::size_t>(group->nodes), fleet_nodes_max))
      return invalid("describes more than 100000 nodes").within(file);
    add_group(fleet, *group);
  }
  if (fleet.empty()) return invalid("describes no nodes").within(file);
  return fleet;
}

}  // namespace

void add_group(Fleet& fleet, const FleetGroup& group) {
  const auto first = static_cast<std::int64_t>(fleet.size());
  fleet.reserve(fleet.size() + static_cast<std::size_t>(group.nodes));
  for (std::int64_t at = first; at < first + group.nodes; ++at) {
    const std::int64_t rack = at / group.nodes_per_rack;
    const std::int64_t pod = rack / group.racks_per_pod;
    const std::int64_t site = pod / group.pods_per_site;
    FleetNode node;
    node.name = "n" + std::to_string(at + 1);
    node.location =
        "s" + std::to_string(site + 1) + "/p" + std::to_string(pod + 1) + "/r" + std::to_string(rack + 1);
    node.inventory.devices.assign(static_cast<std::size_t>(group.gpus), {group.model, gib(80), "", -1});
    node.inventory.cpus = static_cast<std::int32_t>(group.cpus);
    node.inventory.memory = group.memory;
    fleet.push_back(std::move(node));
  }
}

Result<Fleet> read_fleet(const std::string& file) {
  if (file.ends_with(".csv") || file.ends_with(".csv.gz")) return from_csv(file);
  return from_yaml(file);
}

}  // namespace tutti::replay
