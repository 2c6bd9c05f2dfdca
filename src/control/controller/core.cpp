#include "control/controller/core.hpp"

#include <exception>

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"

namespace tutti::controller {
namespace {

driver::Now clocks_now() { return {now_on_the_wall(), now_steady()}; }

}  // namespace

Core::Core(store::Store& store, Deliver deliver, Ended ended, std::string new_cluster_id,
           const cluster::Retention& keep)
    : deliver_(std::move(deliver)),
      ended_(std::move(ended)),
      turns_(store, clocks_now, std::move(new_cluster_id), keep, boot_id()) {}

Core::~Core() { stop(); }

Result<> Core::start() {
  if (auto loaded = turns_.load(); !loaded) return loaded;
  cluster_id_ = turns_.state().cluster_id;
  for (const auto& [name, node] : turns_.state().nodes) {
    if (!node.lost && !node.identity.empty()) agents_known_[name] = node.identity;
  }
  doors_known_ = people::all_doors(turns_.state().people);
  members_known_ = turns_.state().members;
  const Instant there_at = turns_.state().there_at;
  if (there_at != Instant()) absence_ = {there_at, turns_.state().loaded_at};
  thread_ = std::thread([this] { run(); });
  return {};
}

void Core::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Core::happen(cluster::Event event, Reply reply, std::optional<people::Credential> by, std::string from) {
  driver::Item item{std::move(event), std::move(reply), nullptr,
                    std::nullopt,     std::move(by),    std::move(from)};
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.add(item)) return false;
  }
  woken_.notify_one();
  return true;
}

void Core::awake() {
  {
    const std::lock_guard lock(mutex_);
    waiting_.add_always({cluster::Tick{}, nullptr, nullptr, now_steady()});
  }
  woken_.notify_one();
}

void Core::ask(Query query) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.add_always({cluster::Tick{}, nullptr, std::move(query)});
  }
  woken_.notify_one();
}

bool Core::look(const std::string& address, Query query, IsOver is_over) {
  {
    const std::lock_guard lock(mutex_);
    if (!looks_.add(address, {std::move(query), std::move(is_over)})) return false;
  }
  woken_.notify_one();
  return true;
}

bool Core::take(std::vector<driver::Item>& items) {
  const Duration patience = turns_.patience();
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, patience, [this] { return !waiting_.empty() || !looks_.empty() || stopping_; });
  answer_looks(lock);
  if (waiting_.asked() > 0)
    woken_.wait_until(lock, turned_at_ + linger_.time(),
                      [this] { return linger_.enough(waiting_.asked()) || stopping_; });
  items = waiting_.take();
  if (waiting_.take_missed()) turns_.miss();
  for (const std::string& node : waiting_.take_missed_nodes()) turns_.miss(node);
  return !stopping_ || !items.empty() || !looks_.empty();
}

// Between two turns what is in memory is what is stored.
void Core::answer_looks(std::unique_lock<std::mutex>& lock) {
  const auto begun = std::chrono::steady_clock::now();
  for (std::size_t answered = 0; !looks_.empty() && answered < looks_per_turn_max &&
                                 std::chrono::steady_clock::now() - begun < looks_time_max;) {
    const Look look = looks_.take();
    if (look.is_over && look.is_over()) continue;
    lock.unlock();
    turns_.answer(look.query);
    lock.lock();
    ++answered;
  }
}

// What it has half done is not the truth that is stored: it ends, and the next one reads that.
void Core::run() {
  try {
    take_turns();
  } catch (const std::exception& failure) {
    log::error("the controller ends, because its core cannot go on: {}", failure.what());
    std::terminate();
  }
}

void Core::take_turns() {
  bool was_well = true;
  for (std::vector<driver::Item> items; take(items);) {
    const auto begun = std::chrono::steady_clock::now();
    auto outcome = turns_.turn(std::move(items), watchers.load() > 0);
    log_health(was_well);
    was_well = turns_.health().ok;
    for (const std::string& node : outcome.lost)
      log::warning("node {} is lost: it was not heard for {}; its gangs are ended and start again elsewhere",
                   node, format_duration(cluster::lease));
    if (!outcome.delivery.empty()) deliver_(std::move(outcome.delivery));
    if (ended_) {
      for (const cluster::JobId id : outcome.ended) ended_(turns_.state().jobs.at(id));
    }
    for (auto& answer : outcome.answers) answer.reply(std::move(answer.result));
    for (const Query& query : outcome.queries) turns_.answer(query);
    note_turn(begun, outcome.answers.size());
    turns_.rest();
  }
}

void Core::note_turn(std::chrono::steady_clock::time_point begun, std::size_t answered) {
  turned_at_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  linger_.turned(turned_at_ - begun, answered, waiting_.asked());
}

void Core::log_health(bool was_well) const {
  const wire::StoreHealth& health = turns_.health();
  if (was_well && !health.ok) log::error("cannot store: {}", health.error);
  if (!was_well && health.ok) log::warning("the store works again");
}

}  // namespace tutti::controller
