#include "control/driver/outbox.hpp"

#include <iterator>
#include <utility>

#include "control/wire/messages.hpp"

namespace tutti::driver {
namespace {

// What protobuf adds to a string or a rank, at most.
constexpr std::size_t overhead_bytes = 16;

std::size_t bytes_of(const std::vector<std::string>& strings) {
  std::size_t bytes = 0;
  for (const std::string& text : strings) bytes += text.size() + overhead_bytes;
  return bytes;
}

// What all ranks of a message share.
wire::StartRanks shared_part(const cluster::Job& job, const cluster::GangEnvironment& gang,
                             const cluster::NodeName& node) {
  wire::StartRanks message;
  message.job = job.id;
  message.attempt = job.attempt;
  message.command = job.spec.command;
  message.env = job.spec.env;
  for (std::string& variable : gang.of_node(node)) message.env.push_back(std::move(variable));
  message.workdir = job.spec.workdir;
  message.sync = job.spec.sync;
  message.cpus = job.spec.shape.cpus;
  message.memory = job.spec.shape.memory;
  message.grace = job.spec.grace;
  message.has_saved = job.has_saved;
  message.user = job.spec.user;
  return message;
}

// The messages of one turn.
class Letters {
 public:
  Letters(const cluster::State& state, const OpenSecret& open, const AttemptSecret& attempt_secret,
          std::vector<Delivery::Message>& messages)
      : state_(state), open_(open), attempt_secret_(attempt_secret), messages_(messages) {}

  std::vector<Withheld> withheld() { return std::move(withheld_); }

  bool enough() const { return ranks_ >= ranks_per_turn_max || bytes_ >= message_bytes_per_turn_max; }

  void operator()(const cluster::StartRanks& start) {
    const auto job = state_.jobs.find(start.job);
    // What happened later may have ended the attempt that this one started.
    if (job == state_.jobs.end() || !job->second.placed() || job->second.attempt != start.attempt) return;
    const cluster::GangEnvironment& gang = gang_of(job->second);
    const auto secrets = secrets_of(job->second);
    if (!secrets) {
      // Once for all its nodes.
      if (withheld_.empty() || withheld_.back().job != start.job)
        withheld_.push_back({start.job, start.attempt, secrets.error().text()});
      return;
    }
    wire::StartRanks message = shared_part(job->second, gang, start.node);
    message.secrets = *secrets;
    // Here, and not in the description of the gang: so it is in no answer and no store. Whoever is alone
    // meets nobody.
    if (attempt_secret_ && job->second.places.size() > 1)
      message.env.push_back("TUTTI_WORLD_SECRET=" + attempt_secret_(state_.cluster_id, job->second));
    std::size_t shared_bytes = bytes_of(message.command) + bytes_of(message.env);
    for (const wire::SecretValue& secret : message.secrets)
      shared_bytes += secret.name.size() + secret.value.size() + 2 * overhead_bytes;
    std::size_t bytes = shared_bytes;
    for (const std::int32_t rank : start.ranks) {
      wire::StartRank own{rank, gang.of_rank(rank), cluster::output_file(job->second, rank)};
      const std::size_t more = bytes_of(own.env) + own.output.size() + overhead_bytes;
      if (!message.ranks.empty() && bytes + more > wire::message_bytes_max) {
        put(start.node, message);
        message.ranks.clear();
        message.master_port = 0;
        bytes = shared_bytes;
      }
      bytes += more;
      // The agent of rank 0 has kept it free.
      if (rank == 0) message.master_port = job->second.master_port;
      message.ranks.push_back(std::move(own));
    }
    message.whole_gang = message.ranks.size() == job->second.places.size();
    put(start.node, message);
    ranks_ += start.ranks.size();
  }
  void operator()(const cluster::EndRanks& end) {
    add(end.node, wire::EndRanks{end.job, end.attempt, end.ranks, end.at_once});
    ++ranks_;
  }
  void operator()(const cluster::ForgetRanks& forget) {
    add(forget.node, wire::ForgetRanks{forget.job, forget.attempt, forget.job_ended});
    ++ranks_;
  }
  void operator()(const cluster::AskHello& ask) { add(ask.node, wire::Resync{}); }

 private:
  // Opened once for the starts of a gang, which follow each other.
  Result<std::vector<wire::SecretValue>> secrets_of(const cluster::Job& job) {
    if (job.spec.secrets.empty() && !job.spec.service) return std::vector<wire::SecretValue>();
    if (secrets_job_ == job.id) return secrets_;
    const auto sealed = cluster::secrets_of(state_, job.spec);
    if (!sealed) return failed(sealed.error().message());
    if (!open_) return failed("this controller opens no secrets");
    std::vector<wire::SecretValue> opened;
    for (const cluster::Secret* secret : *sealed) {
      auto value = open_(state_.cluster_id, *secret);
      if (!value) return std::move(value).error().within("secret " + secret->id.name);
      opened.push_back({secret->id.name, *std::move(value)});
    }
    secrets_job_ = job.id;
    secrets_ = std::move(opened);
    return secrets_;
  }
  // The starts of a gang follow each other: where its ranks are is read once for all of them.
  const cluster::GangEnvironment& gang_of(const cluster::Job& job) {
    if (gang_ == nullptr || gang_job_ != &job) {
      gang_ = std::make_unique<cluster::GangEnvironment>(state_, job);
      gang_job_ = &job;
    }
    return *gang_;
  }
  void put(const cluster::NodeName& node, const wire::StartRanks& start) {
    messages_.push_back({node, wire::encode(wire::ControllerMessage(start)), start.job, start.attempt, true});
    bytes_ += messages_.back().frame.size();
  }
  void add(const cluster::NodeName& node, const wire::ControllerMessage& message) {
    messages_.push_back({node, wire::encode(message), {}, 0, false});
  }

  const cluster::State& state_;
  const OpenSecret& open_;
  const AttemptSecret& attempt_secret_;
  std::vector<Delivery::Message>& messages_;
  cluster::JobId secrets_job_;
  std::vector<wire::SecretValue> secrets_;
  std::vector<Withheld> withheld_;
  const cluster::Job* gang_job_ = nullptr;
  std::unique_ptr<cluster::GangEnvironment> gang_;
  std::size_t ranks_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace

void Outbox::add(std::vector<cluster::Send> sends) {
  std::move(sends.begin(), sends.end(), std::back_inserter(sends_));
}

std::vector<Withheld> Outbox::write(const cluster::State& state, const OpenSecret& open,
                                    std::vector<Delivery::Message>& messages) {
  Letters letters(state, open, attempt_secret_, messages);
  while (!sends_.empty() && !letters.enough()) {
    std::visit(letters, sends_.front());
    sends_.pop_front();
  }
  return letters.withheld();
}

}  // namespace tutti::driver
