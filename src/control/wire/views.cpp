// The REST views, through protobuf's JSON mapping with the names of the schema.
#include <algorithm>
#include <cmath>
#include <map>

#include <google/protobuf/util/json_util.h>

#include "control/wire/convert.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/objects.hpp"

namespace tutti::wire {
namespace {

namespace json = google::protobuf::util;

std::string print(const google::protobuf::Message& message) {
  json::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = json::MessageToJsonString(message, &text, options);
  TUTTI_CHECK(printed.ok());
  return text;
}

Result<> parse(std::string_view text, google::protobuf::Message& message) {
  const auto parsed = json::JsonStringToMessage({text.data(), text.size()}, &message);
  if (parsed.ok()) return {};
  return invalid("the body is not the JSON that is expected here: " +
                 std::string(parsed.message()).substr(0, 200));
}

double gpus(std::int64_t share) { return static_cast<double>(share) / sched::whole_share; }

std::string_view name_of(cluster::RankState state) {
  switch (state) {
    case cluster::RankState::assigned:
      return "assigned";
    case cluster::RankState::started:
      return "running";
    case cluster::RankState::exited:
      return "ended";
  }
  return "";
}

void fill_places(const cluster::Job& job, proto::JobView& view) {
  std::map<std::string, proto::JobDevices*> by_node;
  for (const auto& place : job.places) {
    auto& entry = by_node[place.node];
    if (entry == nullptr) {
      view.add_nodes(place.node);
      entry = view.add_devices();
      entry->set_node(place.node);
    }
    for (const auto& device : place.devices) {
      const auto& known = entry->devices();
      if (std::find(known.begin(), known.end(), device.device) == known.end())
        entry->add_devices(device.device);
    }
  }
}

void fill_detail(const cluster::Job& job, proto::JobDetail& view) {
  add_strings(job.spec.command, *view.mutable_command());
  view.set_workdir(job.spec.workdir);
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    auto* added = view.add_rank_states();
    added->set_rank(static_cast<std::int32_t>(rank));
    added->set_node(job.places[rank].node);
    added->set_state(std::string(name_of(job.ranks[rank].state)));
    added->set_exit_code(job.ranks[rank].exit_code);
    added->set_detail(job.ranks[rank].detail);
    for (const auto& device : job.places[rank].devices) added->add_devices(device.device);
  }
}

void fill(const cluster::State& state, const cluster::Job& job, proto::JobView& view) {
  view.set_id(job.id.text());
  view.set_name(job.spec.name);
  view.set_state(std::string(cluster::name_of(job.state)));
  view.set_queue(job.spec.queue);
  view.set_ranks(cluster::rank_count(job));
  view.set_ranks_wanted(job.spec.shape.ranks);
  view.set_gpus(gpus(cluster::gpu_share_total(job)));
  view.set_attempt(job.attempt);
  view.set_submitted_at(format_instant(job.submitted_at));
  if (job.started_at != Instant()) view.set_started_at(format_instant(job.started_at));
  if (job.finished_at != Instant()) view.set_finished_at(format_instant(job.finished_at));
  if (job.finished()) view.set_exit_code(job.exit_code);
  view.set_reason(cluster::reason_of(state, job));
  view.set_user(job.spec.user);
  view.set_priority(job.spec.priority);
  if (job.spec.array) {
    view.set_array_id(job.spec.array->first.text());
    view.set_array_index(job.spec.array->index);
    view.set_array_count(job.spec.array->count);
  }
  fill_places(job, view);
}

// Two objects as one. Neither is empty.
std::string beside(std::string first, const std::string& second) {
  first.back() = ',';
  return first + second.substr(1);
}

// What placed gangs use of each node.
struct Use {
  std::map<std::int32_t, std::int32_t> shares;
  std::int32_t cpus = 0;
  Bytes memory;
  std::vector<std::string> jobs;
};

std::map<std::string, Use> uses(const cluster::State& state) {
  std::map<std::string, Use> uses;
  for (const auto id : state.holding) {
    const auto& job = state.jobs.at(id);
    for (const auto& place : job.places) {
      Use& use = uses[place.node];
      use.cpus += job.spec.shape.cpus;
      use.memory += job.spec.shape.memory;
      for (const auto& device : place.devices) use.shares[device.device] += device.share;
      if (use.jobs.empty() || use.jobs.back() != id.text()) use.jobs.push_back(id.text());
    }
  }
  return uses;
}

std::int32_t to_mib(Bytes bytes) { return static_cast<std::int32_t>(bytes.count() >> 20); }

void fill(const cluster::State& state, const cluster::Node& node, const Use& use, proto::NodeView& view) {
  view.set_name(node.name);
  view.set_state(std::string(cluster::name_of(cluster::node_state(state, node))));
  view.set_location(node.location);
  view.set_address(node.address);
  for (std::size_t at = 0; at < node.inventory.devices.size(); ++at) {
    const auto& device = node.inventory.devices[at];
    const auto used = use.shares.find(static_cast<std::int32_t>(at));
    auto* added = view.add_devices();
    added->set_index(static_cast<std::int32_t>(at));
    added->set_model(device.model);
    added->set_memory_mib(to_mib(device.memory));
    added->set_share_free(sched::whole_share - (used == use.shares.end() ? 0 : used->second));
  }
  view.set_cpus(node.inventory.cpus);
  view.set_cpus_free(node.inventory.cpus - use.cpus);
  view.set_memory_mib(to_mib(node.inventory.memory));
  view.set_memory_free_mib(to_mib(node.inventory.memory - use.memory));
  if (node.agent_pid > 0) view.set_agent_pid(static_cast<std::int32_t>(node.agent_pid));
  add_strings(use.jobs, *view.mutable_jobs());
}

// Used on average, lately: what is less is not worth a line.
constexpr double past_gpus_min = 0.001;

void fill(const cluster::State& state, const cluster::Queue& queue, Instant now, proto::QueueView& view) {
  const auto use = state.index.use_of_queue(queue.name, now);
  view.set_name(queue.name);
  view.set_gpus(gpus(use.in_use));
  view.set_gpus_past(use.past / sched::whole_share);
  view.set_guarantee_gpus(gpus(queue.guarantee));
  if (queue.limit != sched::no_limit) view.set_limit_gpus(gpus(queue.limit));
  if (queue.user_limit != sched::no_limit) view.set_user_limit_gpus(gpus(queue.user_limit));
  view.set_weight(queue.weight);
}

// From GPUs to thousandths; what is no such number becomes one that no queue may have.
std::int64_t to_share(double gpus) {
  const double share = gpus * sched::whole_share;
  if (!(share >= 0 && share <= static_cast<double>(cluster::queue_share_max)))
    return cluster::queue_share_max + 1;
  return std::llround(share);
}

constexpr double ns_per_us = 1e3;
constexpr double bytes_per_gb = 1e9;

Result<cluster::Link> link_from(const proto::LinkMeasured& from) {
  for (const std::string& name : {from.from(), from.to()}) {
    if (auto named = check_node_name(name); !named) return std::move(named).error();
  }
  const double latency_ns = from.latency_us() * ns_per_us;
  const double bandwidth = from.bandwidth_gb_s() * bytes_per_gb;
  const bool in_range =
      latency_ns > 0 && latency_ns <= static_cast<double>(cluster::link_latency_max.count()) &&
      bandwidth > 0 && bandwidth <= static_cast<double>(cluster::link_bandwidth_max.count());
  if (!in_range) {
    return invalid("latency_us and bandwidth_gb_s are numbers above 0, at most 60000000 and 1000000")
        .within("link from " + from.from() + " to " + from.to());
  }
  // What is there is never rounded to nothing.
  return cluster::Link{from.from(),
                       from.to(),
                       Duration(std::max(std::llround(latency_ns), 1LL)),
                       Bytes(std::max(std::llround(bandwidth), 1LL)),
                       {}};
}

}  // namespace

std::string job_json(const cluster::State& state, const cluster::Job& job, bool detailed) {
  proto::JobView view;
  fill(state, job, view);
  if (!detailed) return print(view);
  proto::JobDetail detail;
  fill_detail(job, detail);
  return beside(print(view), print(detail));
}

Result<std::string> jobs_json(const cluster::State& state, const JobQuery& query) {
  proto::JobList list;
  const auto add = [&](const cluster::Job& job) {
    if (static_cast<std::size_t>(list.jobs_size()) == query.limit) return false;
    fill(state, job, *list.add_jobs());
    return true;
  };
  const cluster::JobId end(query.before == 0 ? ~std::uint64_t{0} : query.before);
  bool complete = true;
  if (query.array != 0) {
    const auto elements = cluster::array_elements(state, cluster::JobId(query.array));
    if (!elements) return elements.error();
    for (auto at = std::lower_bound(elements->begin(), elements->end(), end);
         complete && at != elements->begin();) {
      const auto& job = state.jobs.at(*--at);
      if (query.all || !job.finished()) complete = add(job);
    }
  } else if (query.all) {
    for (auto at = state.jobs.lower_bound(end); complete && at != state.jobs.begin();)
      complete = add((--at)->second);
  } else {
    for (auto at = state.active.lower_bound(end); complete && at != state.active.begin();)
      complete = add(state.jobs.at(*--at));
  }
  if (!complete) list.set_next(list.jobs(list.jobs_size() - 1).id());
  return print(list);
}

std::string node_json(const cluster::State& state, const cluster::Node& node) {
  proto::NodeView view;
  fill(state, node, uses(state)[node.name], view);
  return print(view);
}

std::string nodes_json(const cluster::State& state) {
  proto::NodeList list;
  auto used = uses(state);
  for (const auto& [name, node] : state.nodes) fill(state, node, used[name], *list.add_nodes());
  return print(list);
}

std::string queues_json(const cluster::State& state, Instant now) {
  std::map<std::string, proto::QueueView> views;
  std::map<std::pair<std::string, std::string>, proto::QueueUserView> users;  // by queue and name
  for (const auto& [name, queue] : state.queues) {
    fill(state, queue, now, views[name]);
    for (const auto& [user, use] : state.index.users_of_queue(name, now)) {
      auto& view = users[{name, user}];
      view.set_gpus(gpus(use.in_use));
      view.set_gpus_past(use.past / sched::whole_share);
    }
  }
  for (const auto id : state.active) {
    const auto& job = state.jobs.at(id);
    const auto count = [&](auto& view) {
      job.placed() ? view.set_running(view.running() + 1) : view.set_queued(view.queued() + 1);
    };
    for (std::string name = job.spec.queue; !name.empty(); name = cluster::parent_of(name))
      count(views[name]);
    count(users[{job.spec.queue, job.spec.user}]);
  }
  for (auto& [key, user] : users) {
    // Who was here months ago has nothing to do with it any more.
    if (user.queued() == 0 && user.running() == 0 && user.gpus_past() < past_gpus_min) continue;
    auto* added = views[key.first].add_users();
    *added = user;
    added->set_name(key.second);
  }
  proto::QueueList list;
  for (auto& [name, view] : views) *list.add_queues() = view;
  return print(list);
}

std::string explain_json(const sched::Explanation& explanation, const std::string& id,
                         const std::string& state) {
  proto::ExplainView view;
  view.set_id(id);
  view.set_state(state);
  view.set_why(explanation.why);
  view.set_starts_now(explanation.starts_now);
  view.set_queue(explanation.queue);
  view.set_ahead(static_cast<std::int32_t>(explanation.ahead));
  for (const auto ahead : explanation.ahead_ids) view.add_ahead_ids(ahead.text());
  if (explanation.expected_start) view.set_expected_start(format_instant(*explanation.expected_start));
  view.set_unknown(explanation.unknown);
  for (const auto& suggestion : explanation.suggestions) {
    auto* added = view.add_suggestions();
    added->set_change(suggestion.change);
    added->set_start(format_instant(suggestion.start));
    added->set_now(suggestion.now);
  }
  return print(view);
}

std::string explain_json(const cluster::State& state, const cluster::Job& job) {
  proto::ExplainView view;
  view.set_id(job.id.text());
  view.set_state(std::string(cluster::name_of(job.state)));
  view.set_why(cluster::reason_of(state, job));
  view.set_queue(job.spec.queue);
  return print(view);
}

std::string status_json(const cluster::State& state, const StoreHealth& health, std::string_view version) {
  proto::StatusView view;
  view.set_version(std::string(version));
  std::int64_t share_free = 0;
  auto used = uses(state);
  for (const auto& [name, node] : state.nodes) {
    view.set_nodes(view.nodes() + 1);
    view.set_gpus(view.gpus() + static_cast<std::int32_t>(node.inventory.devices.size()));
    if (cluster::node_state(state, node) != cluster::NodeState::ready) continue;
    view.set_nodes_ready(view.nodes_ready() + 1);
    share_free += sched::whole_share * static_cast<std::int64_t>(node.inventory.devices.size());
    for (const auto& [device, share] : used[name].shares) share_free -= share;
  }
  view.set_gpus_free(gpus(share_free));
  view.set_jobs_running(static_cast<std::int32_t>(state.holding.size()));
  view.set_jobs_queued(static_cast<std::int32_t>(state.active.size() - state.holding.size()));
  view.set_jobs_finished(static_cast<std::int32_t>(state.jobs.size() - state.active.size()));
  view.set_store_ok(health.ok);
  view.set_store_error(health.error);
  return print(view);
}

std::string fabric_json(const cluster::Fabric& fabric) {
  const auto slow = cluster::slow_links(fabric);
  proto::FabricView list;
  for (const auto& [ends, link] : fabric) {
    auto* view = list.add_links();
    view->set_from(link.from);
    view->set_to(link.to);
    view->set_latency_us(static_cast<double>(link.latency.count()) / ns_per_us);
    view->set_bandwidth_gb_s(static_cast<double>(link.bandwidth.count()) / bytes_per_gb);
    view->set_measured_at(format_instant(link.measured_at));
    const auto found = slow.find(ends);
    view->set_slow(found != slow.end());
    if (found != slow.end()) view->set_reason(found->second.text());
  }
  return print(list);
}

Result<std::vector<cluster::JobSpec>> decode_submit(std::string_view text) {
  proto::SubmitRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  std::vector<cluster::JobSpec> specs;
  for (auto& job : *request.mutable_jobs()) {
    if (job.queue().empty()) job.set_queue("default");
    auto spec = from_proto(job);
    if (!spec) return std::move(spec).error();
    specs.push_back(std::move(*spec));
  }
  return specs;
}

Result<std::string> encode_submit(const std::vector<cluster::JobSpec>& specs) {
  proto::SubmitRequest request;
  for (const auto& spec : specs) to_proto(spec, *request.add_jobs());
  // Protobuf writes any bytes as text, and refuses them only when it reads them back.
  if (proto::JobSpec copy;
      request.jobs_size() > 0 && !copy.ParseFromString(request.jobs(0).SerializeAsString())) {
    return invalid("the job holds bytes that are not UTF-8 text")
        .remedy("names, paths, commands and variables must be text");
  }
  return print(request);
}

std::string submitted_json(const std::vector<cluster::JobId>& ids) {
  proto::SubmitReply reply;
  for (const auto id : ids) reply.add_ids(id.text());
  return print(reply);
}

Result<std::vector<std::string>> decode_submitted(std::string_view text) {
  proto::SubmitReply reply;
  if (auto parsed = parse(text, reply); !parsed) return std::move(parsed).error();
  return strings(reply.ids());
}

Result<bool> decode_drain(std::string_view text) {
  proto::DrainRequest request;
  if (text.empty()) return false;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  return request.now();
}

Result<cluster::SetQueue> decode_queue(const std::string& name, std::string_view text) {
  proto::QueueRequest request;
  if (auto parsed = parse(text.empty() ? "{}" : text, request); !parsed) return std::move(parsed).error();
  const auto limit = [](double gpus) { return gpus == -1 ? sched::no_limit : to_share(gpus); };
  cluster::SetQueue queue;
  queue.name = name;
  if (request.has_guarantee_gpus()) queue.guarantee = to_share(request.guarantee_gpus());
  if (request.has_limit_gpus()) queue.limit = limit(request.limit_gpus());
  if (request.has_user_limit_gpus()) queue.user_limit = limit(request.user_limit_gpus());
  if (request.has_weight()) queue.weight = request.weight();
  return queue;
}

Result<std::vector<cluster::Link>> decode_fabric(std::string_view text) {
  proto::FabricRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  std::vector<cluster::Link> links;
  for (const auto& measured : request.links()) {
    auto link = link_from(measured);
    if (!link) return std::move(link).error();
    links.push_back(std::move(*link));
  }
  return links;
}

std::string error_json(const Error& error) {
  proto::ErrorReply reply;
  reply.mutable_error()->set_message(error.message());
  reply.mutable_error()->set_context(error.context());
  reply.mutable_error()->set_remedy(error.remedy());
  reply.mutable_error()->set_wrong_request(error.code() == ErrorCode::invalid);
  return print(reply);
}

Error decode_error(int status, std::string_view text) {
  proto::ErrorReply reply;
  if (!parse(text, reply) || reply.error().message().empty())
    return failed("it answered with HTTP status " + std::to_string(status));
  const ErrorCode code = reply.error().wrong_request() ? ErrorCode::invalid : ErrorCode::failed;
  Error error(code, reply.error().message());
  if (!reply.error().context().empty()) error = std::move(error).within(reply.error().context());
  return std::move(error).remedy(reply.error().remedy());
}

}  // namespace tutti::wire
