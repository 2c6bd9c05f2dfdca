#include "control/wire/convert.hpp"

#include <algorithm>
#include <cctype>

#include "base/text.hpp"
#include "base/visible.hpp"

namespace tutti::wire {
namespace {

constexpr std::int32_t devices_max = 64;
constexpr std::size_t device_name_bytes_max = 128;
constexpr std::int32_t share_max = devices_max * sched::whole_share;

void to_proto(const sched::Shape& from, proto::Shape& to) {
  to.set_ranks(from.ranks);
  to.mutable_rank_counts()->Assign(from.rank_counts.begin(), from.rank_counts.end());
  to.set_ranks_per_node(from.ranks_per_node);
  to.set_nodes(from.nodes);
  to.set_gpu_share(from.gpu_share);
  to.set_cpus(from.cpus);
  to.set_memory_bytes(from.memory.count());
  to.set_gpu_model(from.gpu_model);
  to.set_gpu_memory_bytes(from.gpu_memory.count());
  if (from.within != sched::Level::cluster) to.set_within(std::string(sched::name_of(from.within)));
}

Result<sched::Shape> shape_from(const proto::Shape& from) {
  sched::Shape to;
  to.ranks = from.ranks();
  to.rank_counts.assign(from.rank_counts().begin(), from.rank_counts().end());
  to.ranks_per_node = from.ranks_per_node();
  to.nodes = from.nodes();
  to.gpu_share = from.gpu_share();
  to.cpus = from.cpus();
  to.memory = Bytes(from.memory_bytes());
  to.gpu_model = from.gpu_model();
  to.gpu_memory = Bytes(from.gpu_memory_bytes());
  if (!from.within().empty()) {
    auto within = sched::parse_level(from.within());
    if (!within) return std::move(within).error();
    to.within = *within;
  }
  const bool in_range = to.ranks <= cluster::ranks_max && to.gpu_share <= share_max && to.cpus <= 1 << 16 &&
                        to.memory.count() <= bytes_max && to.gpu_memory.count() <= bytes_max &&
                        to.gpu_memory.count() >= 0;
  if (!in_range) return invalid("a number in the job's shape is out of range");
  if (auto sound = sched::validate(to); !sound) return std::move(sound).error();
  return to;
}

// It ends up in the environment of ranks, in a list with commas.
bool is_device_name(std::string_view uuid) {
  return uuid.size() <= device_name_bytes_max &&
         std::all_of(uuid.begin(), uuid.end(), [](unsigned char letter) {
           return std::isalnum(letter) != 0 || letter == '-' || letter == '/' || letter == '_';
         });
}

// What a later version may say is not known here.
cluster::Told told_from(std::int32_t told) {
  return told == 1 || told == 2 ? static_cast<cluster::Told>(told) : cluster::Told::unknown;
}

}  // namespace

void to_proto(const cluster::JobSpec& from, proto::JobSpec& to) {
  to.set_name(from.name);
  add_strings(from.command, *to.mutable_command());
  add_strings(from.env, *to.mutable_env());
  to.set_workdir(from.workdir);
  to.set_sync(from.sync);
  to.set_output(from.output);
  to.set_user(from.user);
  to_proto(from.shape, *to.mutable_shape());
  to.set_queue(from.queue);
  to.set_priority(from.priority);
  to.set_time_limit_ms(from.time_limit / 1ms);
  to.set_grace_ms(from.grace / 1ms);
  to.set_restarts(from.restarts);
  to.set_restart_on_failure(from.restart_on_failure);
  to.set_slurm_variables(from.slurm_variables);
  to.set_yields(from.yields);
  add_strings(from.secrets, *to.mutable_secrets());
  if (from.service) {
    to.mutable_service()->set_name(from.service->name);
    to.mutable_service()->set_version(from.service->version);
  }
  if (from.array) to_proto(*from.array, *to.mutable_array());
  for (const auto& dependency : from.after) {
    auto* added = to.add_after();
    added->set_job(dependency.job.number());
    added->set_success(dependency.success);
  }
}

Result<cluster::JobSpec> from_proto(const proto::JobSpec& from) {
  cluster::JobSpec to;
  to.name = from.name();
  to.command = strings(from.command());
  to.env = strings(from.env());
  to.workdir = from.workdir();
  to.sync = from.sync();
  to.output = from.output();
  to.user = from.user();
  auto shape = shape_from(from.shape());
  if (!shape) return std::move(shape).error();
  to.shape = std::move(*shape);
  to.queue = from.queue();
  to.priority = from.priority();
  const auto in_time = [](std::int64_t time_ms) { return time_ms >= 0 && time_ms <= time_ms_max; };
  if (!in_time(from.time_limit_ms()) || !in_time(from.grace_ms())) return invalid("a time is out of range");
  to.time_limit = std::chrono::milliseconds(from.time_limit_ms());
  to.grace = std::chrono::milliseconds(from.grace_ms());
  to.restarts = from.restarts();
  to.restart_on_failure = from.restart_on_failure();
  to.slurm_variables = from.slurm_variables();
  to.yields = from.yields();
  to.secrets = strings(from.secrets());
  if (from.has_service()) to.service = cluster::ServicePart{from.service().name(), from.service().version()};
  if (from.has_array()) {
    auto array = from_proto(from.array());
    if (!array) return std::move(array).error();
    to.array = *array;
  }
  for (const auto& dependency : from.after())
    to.after.push_back({cluster::JobId(dependency.job()), dependency.success()});
  if (to.command.empty() || to.command.front().empty()) return invalid("a job needs a command");
  return to;
}

void to_proto(const cluster::ArrayPart& from, proto::ArrayPart& to) {
  to.set_first(from.first.number());
  to.set_index(from.index);
  to.set_count(from.count);
  to.set_limit(from.limit);
}

Result<cluster::ArrayPart> from_proto(const proto::ArrayPart& from) {
  const bool sound = from.index() >= 0 && from.count() > 0 && from.count() <= cluster::array_elements_max &&
                     from.limit() >= 0;
  if (!sound) return invalid("the array is out of range");
  return cluster::ArrayPart{cluster::JobId(from.first()), from.index(), from.count(), from.limit()};
}

void to_proto(const sched::RankPlace& from, proto::RankPlace& to) {
  to.set_node(from.node);
  for (const auto& device : from.devices) {
    auto* added = to.add_devices();
    added->set_device(device.device);
    added->set_share(device.share);
  }
}

sched::RankPlace from_proto(const proto::RankPlace& from) {
  sched::RankPlace to{from.node(), {}};
  for (const auto& device : from.devices()) to.devices.push_back({device.device(), device.share()});
  return to;
}

void to_proto(const cluster::RankStatus& from, proto::RankStatus& to) {
  to.set_state(static_cast<std::int32_t>(from.state));
  to.set_exit_code(from.exit_code);
  to.set_detail(from.detail);
  to.set_vanished(from.vanished);
  to.set_saved_at_ns(from.saved_at.time_since_epoch().count());
  to.set_node_fault(from.node_fault);
  to.set_stopped(from.stopped);
  to.set_told(static_cast<std::int32_t>(from.told));
  to.set_no_room(from.no_room);
  to.set_blameless(from.blameless);
  to.set_by_signal(from.by_signal);
  to.set_no_program(from.no_program);
}

Result<cluster::RankStatus> from_proto(const proto::RankStatus& from) {
  if (from.state() < 0 || from.state() > 2) return invalid("a rank has no such state");
  if (from.exit_code() < 0 || from.exit_code() > 255) return invalid("an exit code is out of range");
  return cluster::RankStatus{static_cast<cluster::RankState>(from.state()),
                             from.exit_code(),
                             valid_utf8(from.detail()),
                             from.vanished(),
                             Instant(Duration(from.saved_at_ns())),
                             from.node_fault(),
                             from.stopped(),
                             told_from(from.told()),
                             from.no_room(),
                             from.blameless(),
                             from.by_signal(),
                             from.no_program()};
}

void to_proto(const cluster::Inventory& from, proto::Inventory& to) {
  for (const auto& device : from.devices) {
    auto* added = to.add_devices();
    added->set_model(device.model);
    added->set_memory_bytes(device.memory.count());
    added->set_uuid(device.uuid);
    added->set_numa(device.numa);
    added->set_silent(device.silent);
  }
  to.set_cpus(from.cpus);
  to.set_memory_bytes(from.memory.count());
  to.set_watch_max(from.watch_max);
}

Result<cluster::Inventory> from_proto(const proto::Inventory& from) {
  const bool in_range = from.devices_size() <= devices_max && from.cpus() >= 0 && from.cpus() <= 1 << 16 &&
                        from.memory_bytes() >= 0 && from.memory_bytes() <= bytes_max && from.watch_max() >= 0;
  if (!in_range) return invalid("the inventory is out of range");
  cluster::Inventory to;
  for (const auto& device : from.devices()) {
    if (device.memory_bytes() < 0 || device.memory_bytes() > bytes_max || device.model().size() > 128) {
      return invalid("a device is out of range");
    }
    if (!is_device_name(device.uuid())) return invalid("a device has a name that is none");
    to.devices.push_back(
        {device.model(), Bytes(device.memory_bytes()), device.uuid(), device.numa(), device.silent()});
  }
  to.cpus = from.cpus();
  to.memory = Bytes(from.memory_bytes());
  to.watch_max = from.watch_max();
  return to;
}

void to_proto(const people::Grant& from, proto::Grant& to) {
  to.set_role(std::string(people::name_of(from.role)));
  to.set_queue(from.queue);
}

Result<people::Grant> from_proto(const proto::Grant& from) {
  const auto role = people::role_named(from.role());
  if (!role) return no_role(from.role());
  return people::Grant{*role, from.queue()};
}

Error no_role(std::string_view name) {
  std::string all;
  for (const people::Role role : people::roles)
    all += (all.empty() ? "" : ", ") + std::string(people::name_of(role));
  return invalid("there is no role '" + visible_line(name.substr(0, 64)) + "'")
      .remedy("the roles are " + all);
}

}  // namespace tutti::wire
