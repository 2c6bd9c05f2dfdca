#include "lab/sim/chaos.hpp"

#include <array>
#include <memory>

#include "lab/sim/faults.hpp"
#include "lab/sim/services.hpp"
#include "lab/sim/users.hpp"
#include "lab/sim/virtual_controller.hpp"
#include "lab/sim/virtual_node.hpp"

namespace tutti::sim {
namespace {

constexpr Duration users_rest = 10s;  // before the faults stop, so that their last answers are under way
constexpr Duration finish_max = std::chrono::minutes(60);
constexpr Duration look_every = 1s;
constexpr Duration jobs_mean_gap = 3s;
constexpr Duration services_mean_gap = 10s;
// Until all that is served answers: it may begin with the longest pause between two starts.
constexpr Duration answer_max = std::chrono::minutes(15);

// One world and its end.
class Chaos {
 public:
  Chaos(std::uint64_t seed, const ChaosOptions& options)
      : options_(options),
        node_count_(2 + Prng(seed).below(4)),
        world_(seed, node_count_, options.keep_history),
        controller_(world_),
        seed_(seed) {
    world_.sabotage = options.sabotage;
    if (options.sabotage == Sabotage::disk_lies) controller_.disk().set_lie(FaultyDisk::Lie::always);
    if (options.sabotage == Sabotage::visible_before_stored)
      controller_.disk().set_lie(FaultyDisk::Lie::before_death);
    make_nodes();
    users_ = std::make_unique<Users>(world_, controller_, names_, gpus_);
    services_ = std::make_unique<Services>(world_, controller_, seed);
    faults_ = std::make_unique<Faults>(world_, controller_, nodes_);
    world_.network.set_calls({.message =
                                  [this](auto id, auto node, Side to, const auto& frame) {
                                    if (to == Side::agent) return nodes_[node]->receive(id, frame);
                                    controller_.receive(id, names_[node], frame);
                                  },
                              .closed =
                                  [this](auto id, auto node, Side side) {
                                    if (side == Side::agent) return nodes_[node]->closed(id);
                                    controller_.closed(id, names_[node]);
                                  }});
  }

  ChaosReport run() {
    controller_.start();
    for (auto& node : nodes_) node->power_on();
    users_act();
    services_->begin();
    services_act();
    faults_->begin(options_.faults);
    run_until(options_.faults);
    if (sound()) {
      world_.note("the faults stop");
      faults_->end();
      world_.checks.faults_stopped(world_.agenda.now());
      services_->faults_stopped();
      answer();
      finish();
    }
    return report();
  }

 private:
  void make_nodes() {
    for (std::size_t index = 0; index < node_count_; ++index) {
      cluster::Hello self{
          "n" + std::to_string(index + 1), "", "10.0.0." + std::to_string(index + 1), 0, {}, {}};
      const auto gpus = static_cast<int>(world_.prng.between(node_gpus_min, node_gpus_max));
      for (int gpu = 0; gpu < gpus; ++gpu) self.inventory.devices.push_back({"H100", gib(80), "uuid"});
      self.inventory.cpus = node_cpus;
      self.inventory.memory = gib(64);
      gpus_ += gpus;
      names_.push_back(self.node);
      nodes_.push_back(
          std::make_unique<VirtualNode>(world_, std::move(self), [this, index] { return dial(index); }));
    }
  }

  std::optional<Network::Id> dial(std::size_t node) {
    if (!controller_.up() || world_.network.blocked(node)) return std::nullopt;
    const Network::Id id = world_.network.open(node);
    controller_.accept(id);
    return id;
  }

  void users_act() {
    const Duration gap(static_cast<Duration::rep>(
        world_.prng.exponential(static_cast<double>(Duration(jobs_mean_gap).count()))));
    world_.agenda.after(gap, [this] {
      if (world_.agenda.now() > options_.faults - users_rest) return;
      users_->act();
      users_act();
    });
  }

  void services_act() {
    const Duration gap(static_cast<Duration::rep>(
        world_.prng.exponential(static_cast<double>(Duration(services_mean_gap).count()))));
    world_.agenda.after(gap, [this] {
      if (world_.agenda.now() > options_.faults - users_rest) return;
      services_->act();
      services_act();
    });
  }

  // What is served comes to answer, and what sleeps wakes.
  void answer() {
    const Duration deadline = world_.agenda.now() + answer_max;
    std::string left = "the controller is not well";
    while (sound() && world_.agenda.now() < deadline && !left.empty()) {
      users_->clean_up();
      run_until(world_.agenda.now() + look_every);
      left = controller_.well() ? services_->not_answering() : "the controller is not well";
    }
    if (sound() && !left.empty()) world_.checks.violate("long after the faults stopped, " + left);
  }

  bool sound() const { return world_.checks.violation().empty(); }

  void run_until(Duration end) {
    while (sound() && world_.agenda.run_next(end)) continue;
  }

  // Everything accepted ends, every rank is forgotten, every node is ready.
  void finish() {
    const Duration deadline = world_.agenda.now() + finish_max;
    std::string left;
    while (sound() && world_.agenda.now() < deadline) {
      users_->clean_up();
      services_->clean_up();
      run_until(world_.agenda.now() + look_every);
      left = what_is_left();
      if (left.empty()) return;
    }
    if (sound()) world_.checks.violate("long after the faults stopped, " + left);
  }

  std::string what_is_left() const {
    if (!controller_.well()) return "the controller is not well";
    if (controller_.state().nodes.size() != node_count_) return "not every node has joined";
    for (const auto& node : nodes_) {
      if (!node->idle()) return "the agent of node " + node->name() + " still answers for ranks";
    }
    return world_.checks.unfinished(controller_.state());
  }

  ChaosReport report() const {
    ChaosReport report;
    report.seed = seed_;
    report.violation = world_.checks.violation();
    report.history.assign(world_.trace.lines().begin(), world_.trace.lines().end());
    report.digest = world_.trace.digest();
    report.events = world_.trace.count();
    report.faults = faults_->count();
    report.time = world_.agenda.now();
    if (!controller_.up()) return report;
    for (const auto& [id, attempt] : world_.checks.attempts()) {
      ++report.jobs;
      report.attempts += static_cast<std::uint64_t>(attempt) + 1;
    }
    return report;
  }

  const ChaosOptions& options_;
  std::size_t node_count_;
  World world_;
  VirtualController controller_;
  std::uint64_t seed_;
  std::vector<std::string> names_;
  int gpus_ = 0;
  std::vector<std::unique_ptr<VirtualNode>> nodes_;
  std::unique_ptr<Users> users_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Faults> faults_;
};

}  // namespace

ChaosReport run_chaos(std::uint64_t seed, const ChaosOptions& options) { return Chaos(seed, options).run(); }

}  // namespace tutti::sim
