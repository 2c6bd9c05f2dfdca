#include "control/cluster/environment.hpp"

#include "base/check.hpp"

namespace tutti::cluster {
namespace {

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

std::string text_of(std::int64_t number) { return std::to_string(number); }

void put(std::vector<std::string>& env, const char* name, const std::string& value) {
  env.push_back(std::string(name) + "=" + value);
}

// How many ranks follow each other on the node of this one. The index knows it of a gang that runs, so that
// describing a part of a large one does not begin with a walk past all of its ranks.
std::int32_t ranks_together(const State& state, const Job& job, std::int32_t first) {
  const NodeName& node = job.places[static_cast<std::size_t>(first)].node;
  const auto all = static_cast<std::int32_t>(job.places.size());
  const RankRun known = state.index.ranks_on(node, job.id);
  if (known.first == first && known.count > 0 && known.count <= all - first) return known.count;
  std::int32_t end = first + 1;
  while (end < all && job.places[static_cast<std::size_t>(end)].node == node) ++end;
  return end - first;
}

}  // namespace

GangEnvironment::GangEnvironment(const State& state, const Job& job) : state_(state), job_(job) {
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.places.size());) {
    const NodeName& node = job.places[static_cast<std::size_t>(rank)].node;
    const auto number = static_cast<std::int32_t>(runs_.size());
    const std::int32_t count = ranks_together(state, job, rank);
    runs_.emplace(node, Run{number, rank, count});
    if (job.spec.slurm_variables) node_list_ += (number == 0 ? "" : ",") + node;
    rank += count;
  }
}

std::vector<std::string> GangEnvironment::of_node(const NodeName& node) const {
  const auto found = runs_.find(node);
  TUTTI_CHECK(found != runs_.end());
  const Run& run = found->second;
  const auto world = static_cast<std::int64_t>(job_.places.size());
  std::vector<std::string> env;
  put(env, "WORLD_SIZE", text_of(world));
  put(env, "LOCAL_WORLD_SIZE", text_of(run.count));
  put(env, "NODE_RANK", text_of(run.number));
  put(env, "MASTER_ADDR", state_.nodes.at(job_.places.front().node).address);
  put(env, "MASTER_PORT", text_of(job_.master_port));
  if (!state_.cluster_id.empty()) put(env, "TUTTI_CLUSTER", state_.cluster_id);
  put(env, "TUTTI_JOB", job_.id.text());
  put(env, "TUTTI_ATTEMPT", text_of(job_.attempt));
  put(env, "TUTTI_NODE", node);
  put(env, "TUTTI_RANKS_WANTED", text_of(job_.spec.shape.ranks));
  if (job_.spec.array) put(env, "TUTTI_ARRAY_INDEX", text_of(job_.spec.array->index));
  if (!job_.spec.slurm_variables) return env;
  const auto nodes = static_cast<std::int64_t>(runs_.size());
  put(env, "SLURM_JOB_ID", job_.id.text());
  put(env, "SLURM_JOB_NAME", job_.spec.name);
  put(env, "SLURM_NTASKS", text_of(world));
  put(env, "SLURM_NODEID", text_of(run.number));
  put(env, "SLURM_NNODES", text_of(nodes));
  put(env, "SLURM_JOB_NUM_NODES", text_of(nodes));
  put(env, "SLURM_NTASKS_PER_NODE", text_of(run.count));
  put(env, "SLURM_JOB_NODELIST", node_list_);
  put(env, "SLURM_SUBMIT_DIR", job_.spec.workdir);
  put(env, "SLURM_RESTART_COUNT", text_of(job_.attempt));
  if (job_.spec.array) {
    put(env, "SLURM_ARRAY_JOB_ID", job_.spec.array->first.text());
    put(env, "SLURM_ARRAY_TASK_ID", text_of(job_.spec.array->index));
    put(env, "SLURM_ARRAY_TASK_COUNT", text_of(job_.spec.array->count));
  }
  return env;
}

std::vector<std::string> GangEnvironment::of_rank(std::int32_t rank) const {
  const RankPlace& place = job_.places[static_cast<std::size_t>(rank)];
  const std::int32_t local = rank - runs_.at(place.node).first;
  std::vector<std::string> env;
  put(env, "RANK", text_of(rank));
  put(env, "LOCAL_RANK", text_of(local));
  const DeviceList devices = device_list(state_.nodes.at(place.node), place);
  put(env, "CUDA_VISIBLE_DEVICES", devices.text);
  if (devices.by_name) put(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  if (!job_.spec.slurm_variables) return env;
  put(env, "SLURM_PROCID", text_of(rank));
  put(env, "SLURM_LOCALID", text_of(local));
  return env;
}

std::vector<std::string> rank_environment(const State& state, const Job& job, std::int32_t rank) {
  const GangEnvironment gang(state, job);
  std::vector<std::string> env = gang.of_node(job.places[static_cast<std::size_t>(rank)].node);
  for (std::string& own : gang.of_rank(rank)) env.push_back(std::move(own));
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
