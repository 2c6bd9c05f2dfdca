#include "control/wire/requests.hpp"

#include <algorithm>
#include <cmath>

#include "base/units.hpp"
#include "base/visible.hpp"
#include "control/cluster/job_bytes.hpp"
#include "control/cluster/limits.hpp"
#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/submit_json.hpp"

namespace tutti::wire {
namespace {

constexpr std::size_t default_name_bytes_max = 128;
constexpr int removed_jobs_max = 1000;  // of one request: a commit each
// What the elements of an array have each for itself, all together: as much as a body may have in which each
// is written out.
constexpr std::size_t array_own_bytes_max = 16 << 20;

bool is_name_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '-' || letter == '.' || letter == ' ';
}

// From GPUs to thousandths; what is no such number becomes one that no queue may have.
std::int64_t to_share(double gpus) {
  const double share = gpus * sched::whole_share;
  if (!(share >= 0 && share <= static_cast<double>(cluster::queue_share_max)))
    return cluster::queue_share_max + 1;
  return std::llround(share);
}

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

// Of the first word: what a shell is to do may stand there as a whole. A variable that is set is no name.
std::string name_from(const std::string& command) {
  const std::string program = command.substr(0, command.find_first_of(" \t\n;|&"));
  if (program.find('=') != std::string::npos) return "job";
  std::string name = program.substr(program.rfind('/') + 1).substr(0, default_name_bytes_max);
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return !is_name_letter(letter); }, '_');
  return name.empty() ? "job" : name;
}

// What a request leaves out is here as it is on a command line. Not in from_proto: what the store keeps has
// no defaults, and a zero that an earlier version wrote is one.
void fill_in(proto::JobSpec& job) {
  const cluster::JobSpec usual;
  if (job.queue().empty()) job.set_queue(usual.queue);
  if (job.user().empty()) job.set_user("unnamed");
  if (job.name().empty() && job.command_size() > 0) job.set_name(name_from(job.command(0)));
  if (!job.has_grace_ms()) job.set_grace_ms(usual.grace / 1ms);
  if (!job.has_restarts()) job.set_restarts(usual.restarts);
  auto& shape = *job.mutable_shape();
  if (!shape.has_ranks()) shape.set_ranks(shape.rank_counts().empty() ? 1 : shape.rank_counts(0));
}

Result<> is_no_replica(const proto::JobSpec& job) {
  if (!job.has_service()) return {};
  return invalid("of which service a job is a replica, the cluster says").within("service");
}

constexpr double ms_per_s = 1'000;

// What is no such time becomes one that no service may have.
Duration time_from_ms(double ms) {
  constexpr double most = 1e12;
  if (!(ms >= 0 && ms <= most)) return Duration::max();
  return std::chrono::round<Duration>(std::chrono::duration<double, std::milli>(ms));
}

std::int32_t share_from(double part) {
  if (!(part >= 0 && part < 1)) return cluster::share_of_all;
  // What there is is never rounded to nothing.
  const auto share = static_cast<std::int32_t>(std::lround(part * cluster::share_of_all));
  return part > 0 ? std::max(share, 1) : 0;
}

Result<cluster::ServiceTold> service_told_from(const proto::ServiceTold& from) {
  const bool in_range = from.version() > 0 && from.waiting() >= 0 && from.running() >= 0 &&
                        from.waiting() <= cluster::told_requests_max &&
                        from.running() <= cluster::told_requests_max && from.cache_used() >= 0 &&
                        from.cache_used() <= 1 &&
                        static_cast<std::size_t>(from.ttft_ms_size()) <= cluster::Latencies::steps;
  if (!in_range) return invalid("a number is out of range").within("services");
  if (auto named = cluster::check_service_name(from.name()); !named)
    return std::move(named).error().within("services");
  cluster::ServiceTold told{.service = from.name(),
                            .version = from.version(),
                            .requests = from.requests(),
                            .failures = from.failures(),
                            .waiting = from.waiting(),
                            .running = from.running(),
                            .cache_used = from.cache_used()};
  std::copy(from.ttft_ms().begin(), from.ttft_ms().end(), told.first_tokens.counts.begin());
  return told;
}

// One job stands for all elements of its array.
Result<> spread_out(const proto::SubmitRequest& request, cluster::Submit& submit) {
  if (submit.specs.size() != 1 || !submit.specs.front().array)
    return invalid("indices are those of an array, of which one element is given").within("indices");
  if (request.indices_size() > cluster::array_elements_max)
    return invalid("an array has at most " + std::to_string(cluster::array_elements_max) + " elements")
        .within("indices");
  const auto elements = static_cast<std::size_t>(request.indices_size());
  if (const std::size_t bytes = elements * cluster::own_bytes_of(submit.specs.front());
      bytes > array_own_bytes_max)
    return invalid("its elements have " + format_bytes(Bytes(static_cast<std::int64_t>(bytes))) +
                   " of names and paths together; " + format_bytes(Bytes(array_own_bytes_max)) +
                   " is the most")
        .within("indices")
        .remedy("give it shorter paths, or fewer elements");
  submit.specs.resize(elements, cluster::JobSpec(submit.specs.front()));
  for (std::size_t at = 0; at < submit.specs.size(); ++at) {
    const std::int32_t index = request.indices(static_cast<int>(at));
    if (index < 0 || index > cluster::array_index_max)
      return invalid(std::to_string(index) + " is not between 0 and " +
                     std::to_string(cluster::array_index_max))
          .within("indices");
    submit.specs[at].array->index = index;
  }
  return {};
}

// What an element says of its array is what came with it: those who wait for all of the array, and jobs that
// share its work by count and index, would wait for elements that nobody has sent.
Result<> check_counts(const cluster::Submit& submit) {
  const auto given = static_cast<std::int64_t>(submit.specs.size());
  for (const cluster::JobSpec& spec : submit.specs) {
    if (!spec.array || spec.array->count == given) continue;
    return invalid("the array has a count of " + std::to_string(spec.array->count) + ", and " +
                   std::to_string(given) + (given == 1 ? " element is given" : " elements are given"))
        .within("array")
        .remedy("count is the number of its indices");
  }
  return {};
}

// Do they differ in their index alone?
bool are_one_array(const std::vector<cluster::JobSpec>& specs) {
  if (specs.size() < 2 || !specs.front().array) return false;
  cluster::JobSpec like = specs.front();
  return std::all_of(specs.begin(), specs.end(), [&](const cluster::JobSpec& spec) {
    if (!spec.array) return false;
    like.array->index = spec.array->index;
    return spec == like;
  });
}

}  // namespace

Result<cluster::Submit> decode_submit(std::string_view text) {
  proto::SubmitRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  if (auto checked = cluster::check_submit_key(request.key()); !checked) return std::move(checked).error();
  // Written out they are refused before each is made.
  if (request.jobs_size() > cluster::array_elements_max)
    return invalid("an array has at most " + std::to_string(cluster::array_elements_max) + " elements")
        .within("jobs");
  cluster::Submit submit{{}, request.key()};
  for (auto& job : *request.mutable_jobs()) {
    if (auto free = is_no_replica(job); !free) return std::move(free).error();
    fill_in(job);
    auto spec = from_proto(job);
    if (!spec) return std::move(spec).error();
    if (auto checked = cluster::check_limits(*spec); !checked) return std::move(checked).error();
    submit.specs.push_back(std::move(*spec));
  }
  if (!request.indices().empty()) {
    if (auto spread = spread_out(request, submit); !spread) return std::move(spread).error();
  }
  if (auto checked = check_counts(submit); !checked) return std::move(checked).error();
  return submit;
}

Result<std::string> encode_submit(const cluster::Submit& submit) {
  proto::SubmitRequest request;
  request.set_key(submit.key);
  if (are_one_array(submit.specs)) {
    to_proto(submit.specs.front(), *request.add_jobs());
    for (const auto& spec : submit.specs) request.add_indices(spec.array->index);
  } else {
    for (const auto& spec : submit.specs) to_proto(spec, *request.add_jobs());
  }
  // Protobuf writes any bytes as text, and refuses them only when it reads them back.
  if (proto::JobSpec copy;
      request.jobs_size() > 0 && !copy.ParseFromString(request.jobs(0).SerializeAsString())) {
    return invalid("the job holds bytes that are not UTF-8 text")
        .remedy("names, paths, commands and variables must be text");
  }
  return submit_json(request);
}

Result<cluster::Serve> decode_serve(const cluster::ServiceName& name, std::string_view text) {
  proto::ServiceSpec request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  if (auto named = cluster::check_service_name(name); !named) return std::move(named).error();
  const bool only_command = !request.command().empty();
  if (request.has_job() == only_command)
    return invalid("it names neither the job that a replica is nor another command for it, or both")
        .remedy("{\"job\":{\"command\":[…]}}, or {\"command\":[…]} for a service that there is");
  auto& job = *request.mutable_job();
  if (only_command) *job.mutable_command() = std::move(*request.mutable_command());
  if (auto free = is_no_replica(job); !free) return std::move(free).error();
  if (job.name().empty()) job.set_name(name);
  fill_in(job);
  auto spec = from_proto(job);
  if (!spec) return std::move(spec).error().within("job");
  if (auto checked = cluster::check_limits(*spec); !checked) return std::move(checked).error().within("job");
  cluster::Serve serve;
  serve.name = name;
  serve.replica = *std::move(spec);
  serve.only_command = only_command;
  if (only_command) serve.replica.user.clear();
  if (request.has_replicas_min()) serve.replicas_min = request.replicas_min();
  if (request.has_replicas_max()) serve.replicas_max = request.replicas_max();
  if (request.has_idle_s()) serve.idle_time = time_from_ms(request.idle_s() * ms_per_s);
  if (request.has_target_ttft_ms()) serve.target_ttft = time_from_ms(request.target_ttft_ms());
  serve.canary_share = share_from(request.canary_share());
  return serve;
}

Result<cluster::ScaleService> decode_scale(const cluster::ServiceName& name, std::string_view text) {
  proto::ScaleRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  return cluster::ScaleService{name, request.replicas_min(), request.replicas_max(), ""};
}

Result<cluster::GatewayTold> decode_told(std::string_view text) {
  proto::GatewayTold request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  if (static_cast<std::size_t>(request.services_size()) > cluster::told_services_max)
    return invalid("a gateway tells of at most " + std::to_string(cluster::told_services_max) + " services");
  cluster::GatewayTold event{request.gateway(), request.url(), {}};
  for (const auto& told : request.services()) {
    auto read = service_told_from(told);
    if (!read) return std::move(read).error();
    event.services.push_back(*std::move(read));
  }
  return event;
}

Result<bool> decode_drain(std::string_view text) {
  proto::DrainRequest request;
  if (text.empty()) return false;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  return request.now();
}

Result<std::vector<cluster::JobId>> decode_remove_jobs(std::string_view text) {
  proto::RemoveJobsRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  if (request.ids().empty() || request.ids_size() > removed_jobs_max)
    return invalid("ids is a list of 1 to " + std::to_string(removed_jobs_max) + " jobs");
  std::vector<cluster::JobId> jobs;
  for (const std::string& id : request.ids()) {
    const auto number = parse_id_number(id);
    if (!number) return number.error();
    jobs.emplace_back(*number);
  }
  return jobs;
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
  if (request.has_priority_max()) queue.priority_max = request.priority_max();
  return queue;
}

Result<cluster::SetPerson> decode_person(const people::Name& name, std::string_view text) {
  proto::PersonRequest request;
  if (auto parsed = parse(text, request); !parsed) return std::move(parsed).error();
  cluster::SetPerson person{.name = name, .kind = {}, .grants = std::vector<people::Grant>(), .blocked = {}};
  if (request.kind() == people::name_of(people::Kind::person)) person.kind = people::Kind::person;
  if (request.kind() == people::name_of(people::Kind::service)) person.kind = people::Kind::service;
  if (!person.kind && !request.kind().empty()) return invalid("the kind is person or service");
  for (const auto& role : request.roles()) {
    auto grant = from_proto(role);
    if (!grant) return std::move(grant).error();
    person.grants->push_back(*std::move(grant));
  }
  return person;
}

Result<TokenWish> decode_token(std::string_view text) {
  proto::TokenRequest request;
  if (auto parsed = parse(text.empty() ? "{}" : text, request); !parsed) return std::move(parsed).error();
  TokenWish wish;
  wish.token.person = request.person();
  wish.token.queue = request.queue();
  wish.token.purpose = visible_line(request.purpose());
  if (!request.role().empty()) {
    const auto role = people::role_named(request.role());
    if (!role) return no_role(request.role());
    wish.token.role_max = *role;
  }
  constexpr std::int64_t life_s_max = people::token_life_max / 1s;
  if (request.expires_in_s() < 0 || request.expires_in_s() > life_s_max)
    return invalid("a token that expires does so within five years");
  if (request.has_expires_in_s()) wish.life = request.expires_in_s() * Duration(1s);
  return wish;
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

}  // namespace tutti::wire
