#include "lab/replay/replay.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "control/cluster/step.hpp"
#include "lab/replay/csv.hpp"

namespace tutti::replay {
namespace {

constexpr std::size_t points_max = 4'000;
// The first instant of a replay; zero means "not yet" in a job.
constexpr Instant epoch(1'000'000'000s);

// A gang as one would submit it: on one node if it fits, else on whole nodes, or equal parts of them.
sched::Shape shape_of(const TraceJob& job, std::int32_t widest) {
  sched::Shape shape;
  shape.gpu_model = job.gpu_type;
  const std::int32_t each = job.gpus <= widest ? job.gpus : std::gcd(job.gpus, widest);
  shape.ranks = job.gpus / each;
  shape.gpu_share = each * sched::whole_share;
  return shape;
}

class Replay {
 public:
  Replay(const Fleet& fleet, const std::vector<TraceJob>& trace, const ReplayOptions& options)
      : fleet_(fleet), trace_(trace), options_(options) {}

  Result<Replayed> run() {
    out_.policy = std::string(options_.policy->name);
    cluster::derive(state_, now_);
    for (const FleetNode& node : fleet_) {
      join(node);
      by_name_[node.name] = &node;
      const auto gpus = static_cast<std::int32_t>(node.inventory.devices.size());
      out_.gpus += gpus;
      widest_ = std::max(widest_, gpus);
    }
    if (auto possible = check_models(); !possible) return std::move(possible).error();
    for (std::size_t next = 0; next < trace_.size(); ++next)
      agenda_.insert({epoch + trace_[next].submit, Kind::submit, next, 0});
    for (std::size_t next = 0; next < options_.failures.size(); ++next) {
      const Failure& failure = options_.failures[next];
      if (!by_name_.contains(failure.node))
        return invalid("there is no node '" + failure.node + "' in the cluster").within("failures");
      agenda_.insert({epoch + failure.at, Kind::fail, next, 0});
      agenda_.insert({epoch + failure.at + failure.down, Kind::revive, next, 0});
    }
    while (done_ < trace_.size()) {
      if (agenda_.empty())
        return failed("job " + first_waiting() + " can never run here")
            .within("after " + std::to_string(done_) + " jobs");
      now_ = std::get<0>(*agenda_.begin());
      while (!agenda_.empty() && std::get<0>(*agenda_.begin()) == now_) {
        const auto [when, kind, subject, attempt] = *agenda_.begin();
        agenda_.erase(agenda_.begin());
        if (auto happened = happen(kind, subject, attempt); !happened) return std::move(happened).error();
      }
      plan();
      note_point();
      if (options_.progress) options_.progress(done_, trace_.size());
    }
    finish();
    return std::move(out_);
  }

 private:
  // In this order if they happen at the same time.
  enum class Kind { end, fail, revive, submit, wake };
  using Item = std::tuple<Instant, Kind, std::size_t, std::int32_t>;

  struct Running {
    std::size_t job = 0;  // of the trace
    Duration worked{};    // of its duration, before this attempt
    Instant since;        // this attempt began
    Instant works_from;   // after the cost of a restart
  };

  // A trace may name devices that the fleet does not have.
  Result<> check_models() const {
    std::set<std::string> models;
    for (const FleetNode& node : fleet_) {
      for (const auto& device : node.inventory.devices) models.insert(device.model);
    }
    for (const TraceJob& job : trace_) {
      if (!job.gpu_type.empty() && !models.contains(job.gpu_type))
        return invalid("job " + job.name + " needs a " + job.gpu_type + ", and the cluster has none")
            .remedy("name the model in the cluster's file, or empty that column");
    }
    return {};
  }

  void join(const FleetNode& node) {
    step(cluster::Hello{node.name, node.location, "10.0.0.1", 1, node.inventory, {}});
  }

  std::string first_waiting() const {
    for (const auto& [id, job] : state_.jobs) {
      if (!job.finished()) return job.spec.name + ": " + cluster::reason_of(state_, job);
    }
    return "";
  }

  Result<> happen(Kind kind, std::size_t subject, std::int32_t attempt) {
    switch (kind) {
      case Kind::submit:
        return submit(subject);
      case Kind::end:
        ended(subject, attempt);
        return {};
      case Kind::fail:
        fail(options_.failures[subject].node);
        return {};
      case Kind::revive:
        if (--down_[options_.failures[subject].node] == 0)
          join(*by_name_.at(options_.failures[subject].node));
        return {};
      case Kind::wake:
        wanted_ = true;
        return {};
    }
    return {};
  }

  Result<> submit(std::size_t index) {
    const TraceJob& from = trace_[index];
    cluster::JobSpec spec;
    spec.name = from.name;
    spec.command = {"work"};
    spec.user = from.user;
    spec.grace = 0s;
    spec.yields = true;
    spec.restarts = 1'000'000;
    spec.shape = shape_of(from, widest_);
    auto effects = cluster::step(state_, now_, cluster::Submit{{spec}});
    if (!effects.reply) return std::move(effects.reply).error().within("job " + from.name);
    const cluster::JobId id = effects.reply->front();
    jobs_[id] = index;
    worked_[id] = {};
    state_.index.knows(id, from.duration);
    out_.jobs.push_back({from.name, from.gpus, from.submit, {}, from.duration, {}});
    wanted_ = true;
    return {};
  }

  void ended(std::size_t number, std::int32_t attempt) {
    const cluster::JobId id(number);
    const cluster::Job& job = state_.jobs.at(id);
    // An end that was planned for an attempt that has been stopped since.
    if (job.finished() || !job.placed() || job.attempt != attempt) return;
    report_all(id, {cluster::RankState::exited, 0, "", false});
  }

  void report_all(cluster::JobId id, const cluster::RankStatus& status) {
    const cluster::Job& job = state_.jobs.at(id);
    const std::int32_t attempt = job.attempt;
    const std::vector<sched::RankPlace> places = job.places;
    for (std::size_t rank = 0; rank < places.size(); ++rank)
      step(cluster::Reported{places[rank].node, {id, attempt, static_cast<std::int32_t>(rank), status}});
  }

  void fail(const std::string& name) {
    if (down_[name]++ > 0) return;
    ++out_.node_failures;
    for (const cluster::JobId id : state_.index.jobs_on(name)) {
      if (const auto running = running_.find(id); running != running_.end()) lost_.insert(id);
    }
    for (auto& [other, node] : state_.nodes) node.heard_at = other == name ? now_ - 2 * cluster::lease : now_;
    step(cluster::Tick{});
  }

  void step(const cluster::Event& event) {
    const cluster::Effects effects = cluster::step(state_, now_, event);
    wanted_ = wanted_ || effects.schedule;
    for (const cluster::Send& send : effects.sends) {
      if (const auto* start = std::get_if<cluster::StartRanks>(&send)) {
        starting_.insert(start->job);
      } else if (const auto* end = std::get_if<cluster::EndRanks>(&send)) {
        ending_.push_back(*end);
      }
    }
    for (const cluster::JobId id : effects.jobs) settle(id);
  }

  // What a job is doing now, in the books of the replay.
  void settle(cluster::JobId id) {
    const cluster::Job& job = state_.jobs.at(id);
    const auto running = running_.find(id);
    if (job.placed() || running == running_.end()) return;
    Running& was = running->second;
    ReplayedJob& out = out_.jobs[was.job];
    out.ran.push_back({was.since - epoch, now_ - epoch});
    busy_ -= out.gpus;
    const Duration done = std::max<Duration>(now_ - was.works_from, 0s);
    Duration kept = done;
    if (job.finished()) {
      out.end = now_ - epoch;
      ++done_;
    } else if (lost_.erase(id) > 0) {
      kept = done - done % options_.checkpoint_every;
      out_.lost_gpu_hours += in_seconds(done - kept) * out.gpus / 3600;
    } else {
      ++out_.preemptions;
    }
    out_.lost_gpu_hours +=
        in_seconds(std::min<Duration>(now_ - was.since, was.works_from - was.since)) * out.gpus / 3600;
    const Duration worked = was.worked + kept;
    running_.erase(running);
    if (job.finished()) {
      worked_.erase(id);
      return;
    }
    if (!job.held.empty()) held_.insert(id);
    worked_[id] = worked;
    state_.index.knows(id, trace_[jobs_.at(id)].duration - worked);
  }

  void begin(cluster::JobId id) {
    const cluster::Job& job = state_.jobs.at(id);
    if (!job.placed() || running_.contains(id)) return;
    const std::size_t index = jobs_.at(id);
    const Duration cost = job.attempt > 0 ? options_.restart_cost : Duration();
    running_[id] = {index, worked_.at(id), now_, now_ + cost};
    busy_ += out_.jobs[index].gpus;
    agenda_.insert(
        {now_ + cost + trace_[index].duration - worked_.at(id), Kind::end, id.number(), job.attempt});
    report_all(id, {cluster::RankState::started, 0, "", false});
  }

  // The nodes do at once what they are told, also about ranks of old attempts.
  void answer_ends() {
    while (!ending_.empty()) {
      for (const cluster::EndRanks& end : std::exchange(ending_, {})) {
        for (const std::int32_t rank : end.ranks) {
          cluster::RankReport report{end.job, end.attempt, rank, {}};
          report.status.state = cluster::RankState::exited;
          report.status.exit_code = 143;
          step(cluster::Reported{end.node, std::move(report)});
        }
      }
    }
  }

  // Until nothing more is to be done at this instant.
  void plan() {
    answer_ends();
    while (wanted_) {
      wanted_ = false;
      const sched::Plan plan = options_.policy->schedule(cluster::snapshot(state_, now_), now_);
      step(cluster::Planned{plan, state_.index.generation()});
      answer_ends();
      for (const cluster::JobId id : std::exchange(starting_, {})) begin(id);
      // A trace has no person who would look at a gang that lost many nodes.
      for (const cluster::JobId id : std::exchange(held_, {})) step(cluster::Release{id});
    }
    const Instant wake = cluster::next_wake(state_, now_);
    if (wake != sched::never) {
      if (wake_at_ != sched::never) agenda_.erase({wake_at_, Kind::wake, 0, 0});
      wake_at_ = wake;
      agenda_.insert({wake, Kind::wake, 0, 0});
    }
  }

  void note_point() {
    out_.points.push_back({now_ - epoch, busy_, state_.active.size() - state_.holding.size()});
    if (out_.points.size() < 2 * points_max) return;
    std::vector<Point> half;
    for (std::size_t next = 0; next < out_.points.size(); next += 2) half.push_back(out_.points[next]);
    out_.points = std::move(half);
  }

  void finish() { note_point(); }

  const Fleet& fleet_;
  const std::vector<TraceJob>& trace_;
  const ReplayOptions& options_;
  cluster::State state_;
  Instant now_ = epoch;
  std::set<Item> agenda_;
  std::map<std::string, const FleetNode*> by_name_;
  std::map<std::string, int> down_;
  std::map<cluster::JobId, std::size_t> jobs_;  // in the trace
  std::map<cluster::JobId, Duration> worked_;   // of those that are not over
  std::map<cluster::JobId, Running> running_;
  std::set<cluster::JobId> starting_;
  std::vector<cluster::EndRanks> ending_;
  std::set<cluster::JobId> lost_;
  std::set<cluster::JobId> held_;
  std::int32_t widest_ = 1;
  double busy_ = 0;
  std::size_t done_ = 0;
  bool wanted_ = false;
  Instant wake_at_ = sched::never;
  Replayed out_;
};

std::vector<double> sorted_jct(const std::vector<ReplayedJob>& jobs) {
  std::vector<double> all;
  all.reserve(jobs.size());
  for (const ReplayedJob& job : jobs) all.push_back(in_seconds(job.end - job.submit));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

double Replayed::jct_mean_s() const {
  const auto all = sorted_jct(jobs);
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

double Replayed::jct_median_s() const {
  const auto all = sorted_jct(jobs);
  return all[all.size() / 2];
}

double Replayed::jct_p99_s() const {
  const auto all = sorted_jct(jobs);
  return all[std::min(all.size() - 1, static_cast<std::size_t>(0.99 * static_cast<double>(all.size())))];
}

double Replayed::makespan_s() const {
  Duration first = Duration::max();
  Duration last{};
  for (const ReplayedJob& job : jobs) {
    first = std::min(first, job.submit);
    last = std::max(last, job.end);
  }
  return in_seconds(last - first);
}

double Replayed::queue_mean_s() const {
  double waited = 0;
  for (const ReplayedJob& job : jobs) {
    waited += in_seconds(job.end - job.submit);
    for (const Stretch& stretch : job.ran) waited -= in_seconds(stretch.to - stretch.from);
  }
  return waited / static_cast<double>(jobs.size());
}

double Replayed::utilisation() const {
  double busy = 0;
  for (const ReplayedJob& job : jobs) {
    for (const Stretch& stretch : job.ran) busy += in_seconds(stretch.to - stretch.from) * job.gpus;
  }
  const double all = makespan_s() * static_cast<double>(gpus);
  return all > 0 ? busy / all : 0;
}

Result<std::vector<Failure>> read_failures(const std::string& file) {
  auto csv = read_csv(file);
  if (!csv) return std::move(csv).error();
  const auto at = csv->need("at_s");
  const auto node = csv->need("node");
  const auto down = csv->need("down_s");
  for (const auto* column : {&at, &node, &down}) {
    if (!*column) return column->error();
  }
  std::vector<Failure> failures;
  for (std::size_t row = 0; row < csv->rows.size(); ++row) {
    const auto when = number(*csv, row, *at, 0);
    const auto how_long = number(*csv, row, *down, 0);
    if (!when) return when.error();
    if (!how_long) return how_long.error();
    if (*when > 1e9 || *how_long > 1e9) return csv->error(row, "a number is out of range");
    failures.push_back({std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*when)),
                        csv->rows[row][static_cast<std::size_t>(*node)],
                        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*how_long))});
  }
  return failures;
}

Result<Replayed> replay(const Fleet& fleet, const std::vector<TraceJob>& trace,
                        const ReplayOptions& options) {
  return Replay(fleet, trace, options).run();
}

}  // namespace tutti::replay
