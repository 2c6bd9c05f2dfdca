#include "control/wire/messages.hpp"

#include <algorithm>

#include <google/protobuf/stubs/logging.h>

#include "base/text.hpp"
#include "base/visible.hpp"
#include "control/wire/convert.hpp"

namespace tutti::wire {
namespace {

// Bad bytes are answered with an error of ours; protobuf need not write to stderr as well.
[[maybe_unused]] const bool quiet = [] {
  google::protobuf::SetLogHandler(nullptr);
  return true;
}();

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;

void to_proto(const cluster::RankReport& from, proto::RankReport& to) {
  to.set_job(from.job.number());
  to.set_attempt(from.attempt);
  to.set_rank(from.rank);
  wire::to_proto(from.status, *to.mutable_status());
  to.set_ended_ago_ms(from.ended_ago / 1ms);
  to.set_ran_ms(from.ran / 1ms);
}

// What a rank has left behind is no reason to stop listening to its node: it is made to fit.
Result<cluster::RankReport> report_from(const proto::RankReport& from) {
  proto::RankStatus told = from.status();
  told.set_exit_code(std::clamp(told.exit_code(), 0, 255));
  auto status = from_proto(told);
  if (!status) return std::move(status).error();
  status->detail.resize(cut_utf8(status->detail, detail_bytes_max).size());
  const std::int64_t ended_ago_ms = std::clamp<std::int64_t>(from.ended_ago_ms(), 0, time_ms_max);
  const std::int64_t ran_ms = std::clamp<std::int64_t>(from.ran_ms(), -time_ms_max, time_ms_max);
  return cluster::RankReport{cluster::JobId(from.job()),
                             from.attempt(),
                             from.rank(),
                             std::move(*status),
                             std::chrono::milliseconds(ended_ago_ms),
                             std::chrono::milliseconds(ran_ms)};
}

template <class From>
Duration sent_of(const From& from) {
  return std::chrono::milliseconds(std::clamp<std::int64_t>(from.sent_ms(), 0, time_ms_max));
}

std::string sentence_of(const std::string& from) {
  return visible_line(valid_utf8(from.substr(0, illness_bytes_max)));
}

template <class From>
std::string illness_of(const From& from) {
  return sentence_of(from.illness());
}

Result<std::vector<std::int32_t>> ports_from(const google::protobuf::RepeatedField<std::int32_t>& from) {
  const bool sound = from.size() <= ports_max && std::all_of(from.begin(), from.end(), [](std::int32_t port) {
                       return port > 0 && port <= 65'535;
                     });
  if (!sound) return invalid("the ports of an agent are out of range");
  return std::vector<std::int32_t>(from.begin(), from.end());
}

constexpr std::int64_t logs_ranks_most = 1'000'000'000;  // that an agent may say

void to_proto(const cluster::NodeKeeps& from, proto::Keeps& to) {
  to.set_logs_bytes_max(from.logs_max.count());
  to.set_logs_ranks_max(static_cast<std::int64_t>(from.logs_ranks_max));
  to.set_logs_age_ms(from.logs_age_max / 1ms);
  to.set_checkpoints_age_ms(from.checkpoints_age_max / 1ms);
}

cluster::NodeKeeps keeps_from(const proto::Keeps& from) {
  const auto age = [](std::int64_t ms) {
    return std::chrono::milliseconds(std::clamp<std::int64_t>(ms, 0, time_ms_max));
  };
  const auto ranks = std::clamp<std::int64_t>(from.logs_ranks_max(), 0, logs_ranks_most);
  return {.logs_max = Bytes(std::clamp<std::int64_t>(from.logs_bytes_max(), 0, bytes_max)),
          .logs_ranks_max = static_cast<std::size_t>(ranks),
          .logs_age_max = age(from.logs_age_ms()),
          .checkpoints_age_max = age(from.checkpoints_age_ms())};
}

Result<AgentMessage> hello_from(const proto::Hello& from) {
  if (auto named = check_node_name(from.node()); !named) return std::move(named).error();
  if (from.location().size() > 256 || from.address().size() > 256)
    return invalid("a location or address is too long");
  auto inventory = from_proto(from.inventory());
  if (!inventory) return std::move(inventory).error();
  // What a driver calls its devices is no reason to refuse a node; it is only made fit to be shown.
  for (cluster::Device& device : inventory->devices) device.model = visible_line(device.model);
  cluster::Hello to{from.node(),      visible_line(from.location()), visible_line(from.address()),
                    from.agent_pid(), std::move(*inventory),         {},
                    illness_of(from)};
  for (const auto& rank : from.ranks()) {
    auto report = report_from(rank);
    if (!report) return std::move(report).error();
    to.ranks.push_back(std::move(*report));
  }
  if (!is_cluster_id(from.identity()) || !is_cluster_id(from.cluster()))
    return invalid("the id of a cluster or of a folder is none");
  if (from.machine().size() > machine_bytes_max) return invalid("the name of a machine is too long");
  if (from.jobs_seen() > jobs_seen_max || from.jobs_saved() > jobs_seen_max)
    return invalid("no cluster has so many jobs");
  auto ports = ports_from(from.ports());
  if (!ports) return std::move(ports).error();
  to.identity = from.identity();
  to.machine = from.machine();
  to.cluster = from.cluster();
  to.jobs_seen = from.jobs_seen();
  to.ports = std::move(*ports);
  to.jobs_saved = from.jobs_saved();
  to.keeps_apart = from.keeps_apart();
  if (from.has_keeps()) to.keeps = keeps_from(from.keeps());
  to.lacks = sentence_of(from.lacks());
  return AgentMessage(std::move(to));
}

// Their names become those of files.
Result<std::vector<SecretValue>> secrets_from(
    const google::protobuf::RepeatedPtrField<proto::SecretValue>& from) {
  std::vector<std::string> names;
  std::vector<SecretValue> to;
  std::size_t bytes = 0;
  for (const auto& secret : from) {
    bytes += secret.value().size();
    names.push_back(secret.name());
    to.push_back({secret.name(), secret.value()});
  }
  if (auto checked = cluster::check_secret_names(names); !checked) return std::move(checked).error();
  if (bytes > cluster::job_secrets_bytes_max) return invalid("the secrets of a job are too large");
  return to;
}

Result<ControllerMessage> start_from(const proto::StartRanks& from) {
  const bool in_range = from.grace_ms() >= 0 && from.grace_ms() <= time_ms_max && from.memory_bytes() >= 0 &&
                        from.memory_bytes() <= bytes_max && from.cpus() >= 0;
  if (!in_range) return invalid("a number in the start of ranks is out of range");
  StartRanks to;
  to.job = cluster::JobId(from.job());
  to.attempt = from.attempt();
  to.command = strings(from.command());
  to.env = strings(from.env());
  to.workdir = from.workdir();
  to.sync = from.sync();
  to.cpus = from.cpus();
  to.memory = Bytes(from.memory_bytes());
  to.grace = std::chrono::milliseconds(from.grace_ms());
  for (const auto& rank : from.ranks()) to.ranks.push_back({rank.rank(), strings(rank.env()), rank.output()});
  to.master_port = from.master_port();
  to.whole_gang = from.whole_gang();
  to.has_saved = from.has_saved();
  to.user = from.user();
  if (auto secrets = secrets_from(from.secrets()); secrets) {
    to.secrets = *std::move(secrets);
  } else {
    return std::move(secrets).error();
  }
  return ControllerMessage(std::move(to));
}

void to_proto(const StartRanks& from, proto::StartRanks& to) {
  to.set_job(from.job.number());
  to.set_attempt(from.attempt);
  add_strings(from.command, *to.mutable_command());
  add_strings(from.env, *to.mutable_env());
  to.set_workdir(from.workdir);
  to.set_sync(from.sync);
  to.set_cpus(from.cpus);
  to.set_memory_bytes(from.memory.count());
  to.set_grace_ms(from.grace / 1ms);
  for (const auto& rank : from.ranks) {
    auto* added = to.add_ranks();
    added->set_rank(rank.rank);
    add_strings(rank.env, *added->mutable_env());
    added->set_output(rank.output);
  }
  to.set_master_port(from.master_port);
  to.set_whole_gang(from.whole_gang);
  to.set_has_saved(from.has_saved);
  to.set_user(from.user);
  for (const SecretValue& secret : from.secrets) {
    auto* added = to.add_secrets();
    added->set_name(secret.name);
    added->set_value(secret.value);
  }
}

template <class From, class To>
void name_attempt(const From& from, To& to) {
  to.set_job(from.job.number());
  to.set_attempt(from.attempt);
}

}  // namespace

bool is_cluster_id(std::string_view id) {
  return id.size() <= identity_bytes_max &&
         std::all_of(id.begin(), id.end(), [](unsigned char letter) { return std::isalnum(letter) != 0; });
}

Result<> check_node_name(std::string_view name) {
  const bool fine = !name.empty() && name.size() <= node_name_bytes_max && name.front() != '.' &&
                    name.front() != '-' && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
                      return std::isalnum(letter) != 0 || letter == '.' || letter == '_' || letter == '-';
                    });
  if (fine) return {};
  return invalid("'" + std::string(name.substr(0, 64)) + "' is no name for a node")
      .remedy("use letters, digits, '.', '_' and '-'");
}

std::string encode(const AgentMessage& message) {
  proto::AgentMessage to;
  std::visit(Overload{
                 [&](const cluster::Hello& hello) {
                   auto& body = *to.mutable_hello();
                   body.set_node(hello.node);
                   body.set_location(hello.location);
                   body.set_address(hello.address);
                   body.set_agent_pid(hello.agent_pid);
                   wire::to_proto(hello.inventory, *body.mutable_inventory());
                   for (const auto& rank : hello.ranks) to_proto(rank, *body.add_ranks());
                   body.set_illness(hello.illness);
                   body.set_identity(hello.identity);
                   body.set_machine(hello.machine);
                   body.set_cluster(hello.cluster);
                   body.set_jobs_seen(hello.jobs_seen);
                   body.set_jobs_saved(hello.jobs_saved);
                   body.set_keeps_apart(hello.keeps_apart);
                   if (hello.keeps) to_proto(*hello.keeps, *body.mutable_keeps());
                   body.set_lacks(hello.lacks);
                   body.mutable_ports()->Assign(hello.ports.begin(), hello.ports.end());
                 },
                 [&](const Heartbeat& beat) {
                   to.mutable_heartbeat()->set_illness(beat.illness);
                   to.mutable_heartbeat()->set_echo(beat.echo);
                   to.mutable_heartbeat()->set_kept_bytes(beat.kept.count());
                   to.mutable_heartbeat()->set_sent_ms(beat.sent / 1ms);
                 },
                 [&](const RankReports& reports) {
                   to.mutable_ranks()->set_sent_ms(reports.sent / 1ms);
                   for (const auto& report : reports.ranks)
                     to_proto(report, *to.mutable_ranks()->add_ranks());
                 },
                 [&](const LogChunk& chunk) {
                   to.mutable_log()->set_stream(chunk.stream);
                   to.mutable_log()->set_rank(chunk.rank);
                   to.mutable_log()->set_data(chunk.data);
                   to.mutable_log()->set_attempt(chunk.attempt);
                   to.mutable_log()->set_offset(chunk.offset);
                 },
                 [&](const LogEnd& end) {
                   to.mutable_log_end()->set_stream(end.stream);
                   to.mutable_log_end()->set_attempt(end.attempt);
                   to.mutable_log_end()->set_unread(end.unread);
                 },
                 [&](const FreePorts& free) {
                   to.mutable_ports()->mutable_ports()->Assign(free.ports.begin(), free.ports.end());
                 },
             },
             message);
  return to.SerializeAsString();
}

Result<AgentMessage> decode_agent_message(std::string_view bytes) {
  proto::AgentMessage from;
  if (!from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid("not a message of an agent");
  switch (from.body_case()) {
    case proto::AgentMessage::kHello:
      return hello_from(from.hello());
    case proto::AgentMessage::kHeartbeat:
      return AgentMessage(
          Heartbeat{illness_of(from.heartbeat()), from.heartbeat().echo(),
                    Bytes(std::clamp<std::int64_t>(from.heartbeat().kept_bytes(), 0, bytes_max)),
                    sent_of(from.heartbeat())});
    case proto::AgentMessage::kRank: {
      auto report = report_from(from.rank());
      if (!report) return std::move(report).error();
      return AgentMessage(RankReports{{std::move(*report)}});
    }
    case proto::AgentMessage::kRanks: {
      RankReports reports{{}, sent_of(from.ranks())};
      for (const auto& rank : from.ranks().ranks()) {
        auto report = report_from(rank);
        if (!report) return std::move(report).error();
        reports.ranks.push_back(std::move(*report));
      }
      return AgentMessage(std::move(reports));
    }
    case proto::AgentMessage::kLog:
      return AgentMessage(LogChunk{from.log().stream(), from.log().rank(), from.log().data(),
                                   from.log().attempt(), from.log().offset()});
    case proto::AgentMessage::kLogEnd:
      return AgentMessage(LogEnd{from.log_end().stream(), from.log_end().attempt(),
                                 from.log_end().unread().substr(0, unread_bytes_max)});
    case proto::AgentMessage::kPorts: {
      auto ports = ports_from(from.ports().ports());
      if (!ports) return std::move(ports).error();
      return AgentMessage(FreePorts{std::move(*ports)});
    }
    case proto::AgentMessage::BODY_NOT_SET:
      break;
  }
  return invalid("an empty message of an agent");
}

std::string encode(const ControllerMessage& message) {
  proto::ControllerMessage to;
  std::visit(Overload{
                 [&](const StartRanks& start) { to_proto(start, *to.mutable_start()); },
                 [&](const EndRanks& end) {
                   name_attempt(end, *to.mutable_end());
                   for (const std::int32_t rank : end.ranks) to.mutable_end()->add_ranks(rank);
                   to.mutable_end()->set_at_once(end.at_once);
                 },
                 [&](const ForgetRanks& forget) {
                   name_attempt(forget, *to.mutable_forget());
                   to.mutable_forget()->set_job_ended(forget.job_ended);
                 },
                 [&](const ReadLogs& read) {
                   auto& body = *to.mutable_read_logs();
                   name_attempt(read, body);
                   body.set_stream(read.stream);
                   body.set_rank(read.rank);
                   body.set_follow(read.follow);
                   body.set_tail_lines(read.tail_lines);
                   body.set_finish(read.finish);
                   body.set_credit_bytes(read.credit_bytes);
                   body.set_ranks(read.ranks);
                 },
                 [&](const LogCredit& credit) {
                   to.mutable_log_credit()->set_stream(credit.stream);
                   to.mutable_log_credit()->set_attempt(credit.attempt);
                   to.mutable_log_credit()->set_bytes(credit.bytes);
                 },
                 [&](const StopLogs& stop) { to.mutable_stop_logs()->set_stream(stop.stream); },
                 [&](const Resync&) { to.mutable_resync(); },
                 [&](const Welcome& welcome) { to.mutable_welcome()->set_cluster(welcome.cluster); },
                 [&](const Notice& notice) {
                   to.mutable_notice()->set_text(notice.text);
                   to.mutable_notice()->set_refused(notice.refused);
                 },
                 [&](const RenewCertificate&) { to.mutable_renew_certificate(); },
                 [&](const Echo& echo) { to.mutable_echo()->set_echo(echo.echo); },
             },
             message);
  return to.SerializeAsString();
}

Result<ControllerMessage> decode_controller_message(std::string_view bytes) {
  proto::ControllerMessage from;
  if (!from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return invalid("not a message of a controller");
  switch (from.body_case()) {
    case proto::ControllerMessage::kStart:
      return start_from(from.start());
    case proto::ControllerMessage::kEnd:
      return ControllerMessage(EndRanks{cluster::JobId(from.end().job()),
                                        from.end().attempt(),
                                        {from.end().ranks().begin(), from.end().ranks().end()},
                                        from.end().at_once()});
    case proto::ControllerMessage::kForget:
      return ControllerMessage(ForgetRanks{cluster::JobId(from.forget().job()), from.forget().attempt(),
                                           from.forget().job_ended()});
    case proto::ControllerMessage::kReadLogs: {
      const auto& read = from.read_logs();
      return ControllerMessage(ReadLogs{read.stream(), cluster::JobId(read.job()), read.attempt(),
                                        read.rank(), read.follow(), read.tail_lines(), read.finish(),
                                        read.credit_bytes(), read.ranks()});
    }
    case proto::ControllerMessage::kLogCredit: {
      const auto& credit = from.log_credit();
      return ControllerMessage(LogCredit{credit.stream(), credit.attempt(), credit.bytes()});
    }
    case proto::ControllerMessage::kStopLogs:
      return ControllerMessage(StopLogs{from.stop_logs().stream()});
    case proto::ControllerMessage::kResync:
      return ControllerMessage(Resync{});
    case proto::ControllerMessage::kWelcome:
      if (!is_cluster_id(from.welcome().cluster())) return invalid("the id of a cluster is none");
      return ControllerMessage(Welcome{from.welcome().cluster()});
    case proto::ControllerMessage::kNotice:
      return ControllerMessage(Notice{from.notice().text(), from.notice().refused()});
    case proto::ControllerMessage::kRenewCertificate:
      return ControllerMessage(RenewCertificate{});
    case proto::ControllerMessage::kEcho:
      return ControllerMessage(Echo{from.echo().echo()});
    case proto::ControllerMessage::BODY_NOT_SET:
      break;
  }
  return invalid("an empty message of a controller");
}

}  // namespace tutti::wire
