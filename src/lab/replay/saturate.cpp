#include "lab/replay/saturate.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/prng.hpp"
#include "lab/replay/csv.hpp"

namespace tutti::replay {
namespace {

sched::NodeView view_of(const FleetNode& node) {
  sched::NodeView view{node.name, node.location, {}, node.inventory.cpus, node.inventory.memory, true};
  for (const auto& device : node.inventory.devices)
    view.devices.push_back({device.model, device.memory, sched::whole_share, 0});
  return view;
}

std::int64_t share_of(const sched::Shape& shape) { return std::int64_t{shape.ranks} * shape.gpu_share; }

}  // namespace

Result<std::vector<sched::Shape>> read_tasks(const std::string& file) {
  auto csv = read_csv(file);
  if (!csv) return std::move(csv).error();
  const auto cpus = csv->need("cpu_milli");
  const auto memory = csv->need("memory_mib");
  const auto gpus = csv->need("num_gpu");
  const auto milli = csv->need("gpu_milli");
  for (const auto* column : {&cpus, &memory, &gpus, &milli}) {
    if (!*column) return column->error();
  }
  const int models = csv->column("gpu_spec");
  std::vector<sched::Shape> tasks;
  for (std::size_t row = 0; row < csv->rows.size(); ++row) {
    sched::Shape shape;
    const auto of_cpus = number(*csv, row, *cpus, 0);
    const auto of_memory = number(*csv, row, *memory, 0);
    const auto of_gpus = number(*csv, row, *gpus, 0);
    const auto of_milli = number(*csv, row, *milli, 0);
    for (const auto* value : {&of_cpus, &of_memory, &of_gpus, &of_milli}) {
      if (!*value) return value->error();
    }
    if (*of_cpus > 1e9 || *of_memory > 1e9 || *of_gpus > 64 || *of_milli > sched::whole_share)
      return csv->error(row, "a number is out of range");
    shape.cpus = static_cast<std::int32_t>(*of_cpus);
    shape.memory = Bytes(static_cast<std::int64_t>(*of_memory) << 20);
    shape.gpu_share = static_cast<std::int32_t>(*of_gpus * *of_milli);
    shape.nodes = 1;
    if (models >= 0) shape.gpu_model = csv->rows[row][static_cast<std::size_t>(models)];
    if (auto sound = sched::validate(shape); !sound) return csv->error(row, sound.error().message());
    tasks.push_back(std::move(shape));
  }
  const bool any =
      std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return task.gpu_share > 0; });
  if (!any) return invalid("has no task that needs a GPU").within(file);
  return tasks;
}

double Saturated::mean() const {
  return std::accumulate(gpu_allocation_percent.begin(), gpu_allocation_percent.end(), 0.0) /
         static_cast<double>(gpu_allocation_percent.size());
}

Saturated saturate(const Fleet& fleet, const std::vector<sched::Shape>& tasks, const sched::Policy& policy,
                   const std::vector<std::uint64_t>& seeds,
                   const std::function<void(std::size_t)>& progress) {
  std::vector<sched::NodeView> nodes;
  for (const FleetNode& node : fleet) nodes.push_back(view_of(node));
  const sched::Room room(nodes);
  std::int64_t capacity = 0;
  for (std::size_t kind = 0; kind < room.kinds(); ++kind) capacity += room.total_share(kind);
  struct Class {
    std::shared_ptr<const sched::Shape> shape;
    std::uint32_t number = 0;
    double often = 0;
  };
  std::map<sched::Shape, Class, sched::ShapeOrder> classes;
  for (const sched::Shape& task : tasks) {
    const auto [at, added] = classes.try_emplace(task);
    if (added)
      at->second = {std::make_shared<const sched::Shape>(task),
                    static_cast<std::uint32_t>(classes.size() - 1), 0};
    at->second.often += 1;
  }
  std::vector<std::pair<sched::Shape, double>> shapes;
  shapes.reserve(classes.size());
  for (const auto& [shape, known] : classes) shapes.emplace_back(shape, known.often);
  const auto mix = std::make_shared<const sched::Mix>(sched::make_mix(std::move(shapes)));

  Saturated out{std::string(policy.name), seeds, {}};
  for (const std::uint64_t seed : seeds) {
    Prng prng(seed);
    std::vector<sched::JobView> jobs;
    for (std::int64_t wanted = 0;
         static_cast<double>(wanted) < saturate_arrivals * static_cast<double>(capacity);) {
      const sched::Shape& task = tasks[prng.below(tasks.size())];
      const Class& known = classes.at(task);
      sched::JobView& job = jobs.emplace_back();
      job.id = sched::JobId(jobs.size());
      job.shape = known.shape;
      job.shape_class = known.number;
      wanted += share_of(task);
    }
    sched::Snapshot snapshot;
    snapshot.room = room;
    snapshot.queues = {{.name = "default"}};
    snapshot.users = {{.name = ""}};
    snapshot.shape_classes = static_cast<std::uint32_t>(classes.size());
    snapshot.mix = mix;
    for (const sched::JobView& job : jobs) snapshot.queued.push_back(&job);
    const sched::Plan plan = policy.schedule(snapshot, Instant());
    std::int64_t taken = 0;
    for (const sched::Start& start : plan.starts) taken += share_of(*jobs[start.job.number() - 1].shape);
    out.gpu_allocation_percent.push_back(100.0 * static_cast<double>(taken) / static_cast<double>(capacity));
    if (progress) progress(out.gpu_allocation_percent.size());
  }
  return out;
}

}  // namespace tutti::replay
