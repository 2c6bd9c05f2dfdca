#include "control/cluster/step.hpp"

namespace tutti::cluster {
namespace {

struct Position {
  std::int32_t node_rank = 0;
  std::int32_t local_rank = 0;
  std::int32_t local_size = 0;
  std::int32_t nodes = 0;
};

// Ranks of one node are neighbours: a node's ranks form one run.
Position position_of(const Job& job, std::int32_t rank) {
  Position position;
  const NodeName& home = job.places[static_cast<std::size_t>(rank)].node;
  for (std::size_t at = 0; at < job.places.size(); ++at) {
    const bool begins = at == 0 || job.places[at].node != job.places[at - 1].node;
    if (begins) ++position.nodes;
    if (job.places[at].node != home) continue;
    if (begins) position.node_rank = position.nodes - 1;
    if (static_cast<std::int32_t>(at) < rank) ++position.local_rank;
    ++position.local_size;
  }
  return position;
}

// A name that CUDA takes for a device wherever it stands among the others.
bool names_device(const std::string& uuid) { return uuid.starts_with("GPU-") || uuid.starts_with("MIG-"); }

struct DeviceList {
  std::string text;
  bool by_name = true;
};

// By name where all of them have one: a number means another device as soon as one before it falls silent.
DeviceList device_list(const Node& node, const RankPlace& place) {
  DeviceList names;
  std::string numbers;
  for (const auto& device : place.devices) {
    const auto at = static_cast<std::size_t>(device.device);
    const std::string uuid = at < node.inventory.devices.size() ? node.inventory.devices[at].uuid : "";
    names.by_name = names.by_name && names_device(uuid);
    names.text += (names.text.empty() ? "" : ",") + uuid;
    numbers += (numbers.empty() ? "" : ",") + std::to_string(device.device);
  }
  if (names.by_name && !place.devices.empty()) return names;
  return {numbers, false};
}

std::string node_list(const Job& job) {
  std::string list;
  for (std::size_t at = 0; at < job.places.size(); ++at) {
    if (at > 0 && job.places[at].node == job.places[at - 1].node) continue;
    list += (list.empty() ? "" : ",") + job.places[at].node;
  }
  return list;
}

}  // namespace

std::vector<std::string> rank_environment(const State& state, const Job& job, std::int32_t rank) {
  const Position position = position_of(job, rank);
  const RankPlace& place = job.places[static_cast<std::size_t>(rank)];
  std::vector<std::string> env;
  const auto set = [&](const std::string& name, const std::string& value) {
    env.push_back(name + "=" + value);
  };
  const auto count = [](std::int64_t number) { return std::to_string(number); };
  set("RANK", count(rank));
  set("WORLD_SIZE", count(static_cast<std::int64_t>(job.places.size())));
  set("LOCAL_RANK", count(position.local_rank));
  set("LOCAL_WORLD_SIZE", count(position.local_size));
  set("NODE_RANK", count(position.node_rank));
  set("MASTER_ADDR", state.nodes.at(job.places.front().node).address);
  set("MASTER_PORT", count(job.master_port));
  const DeviceList devices = device_list(state.nodes.at(place.node), place);
  set("CUDA_VISIBLE_DEVICES", devices.text);
  if (devices.by_name) set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  set("TUTTI_JOB", job.id.text());
  set("TUTTI_ATTEMPT", count(job.attempt));
  set("TUTTI_NODE", place.node);
  set("TUTTI_RANKS_WANTED", count(job.spec.shape.ranks));
  if (job.spec.array) set("TUTTI_ARRAY_INDEX", count(job.spec.array->index));
  if (!job.spec.slurm_variables) return env;
  set("SLURM_JOB_ID", job.id.text());
  set("SLURM_JOB_NAME", job.spec.name);
  set("SLURM_PROCID", count(rank));
  set("SLURM_NTASKS", count(static_cast<std::int64_t>(job.places.size())));
  set("SLURM_LOCALID", count(position.local_rank));
  set("SLURM_NODEID", count(position.node_rank));
  set("SLURM_NNODES", count(position.nodes));
  set("SLURM_JOB_NUM_NODES", count(position.nodes));
  set("SLURM_NTASKS_PER_NODE", count(position.local_size));
  set("SLURM_JOB_NODELIST", node_list(job));
  set("SLURM_SUBMIT_DIR", job.spec.workdir);
  set("SLURM_RESTART_COUNT", count(job.attempt));
  if (job.spec.array) {
    set("SLURM_ARRAY_JOB_ID", job.spec.array->first.text());
    set("SLURM_ARRAY_TASK_ID", count(job.spec.array->index));
    set("SLURM_ARRAY_TASK_COUNT", count(job.spec.array->count));
  }
  return env;
}

std::string output_file(const Job& job, std::int32_t rank) {
  const auto& array = job.spec.array;
  std::string file;
  for (std::size_t at = 0; at < job.spec.output.size(); ++at) {
    const char letter = job.spec.output[at];
    if (letter != '%' || at + 1 == job.spec.output.size()) {
      file += letter;
      continue;
    }
    switch (job.spec.output[++at]) {
      case 'j':
        file += job.id.text();
        break;
      case 'x':
        file += job.spec.name;
        break;
      case 'A':
        file += array ? array->first.text() : job.id.text();
        break;
      case 'a':
        file += std::to_string(array ? array->index : 0);
        break;
      case 't':
        file += std::to_string(rank);
        break;
      case '%':
        file += '%';
        break;
      default:
        file += std::string("%") + job.spec.output[at];
    }
  }
  return file;
}

}  // namespace tutti::cluster
