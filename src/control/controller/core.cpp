#include "control/controller/core.hpp"

#include "base/clock/clock.hpp"
#include "base/log/log.hpp"

namespace tutti::controller {
Core::Core(store::Store& store, Deliver deliver, Ended ended, const cluster::Retention& keep)
    : deliver_(std::move(deliver)), ended_(std::move(ended)), turns_(store, now_on_the_wall, keep) {}

Core::~Core() { stop(); }

Result<> Core::start() {
  if (auto loaded = turns_.load(); !loaded) return loaded;
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

void Core::happen(cluster::Event event, Reply reply) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < waiting_items_max) {
      waiting_.push_back({std::move(event), std::move(reply), nullptr});
      woken_.notify_one();
      return;
    }
    // Agents do not repeat what they have said unless they are asked.
    if (!reply) missed_ = true;
  }
  if (reply) reply(failed("the controller is overloaded").remedy("try again in a moment"));
}

void Core::ask(Query query) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({cluster::Tick{}, nullptr, std::move(query)});
  }
  woken_.notify_one();
}

bool Core::take(std::vector<driver::Item>& items) {
  const Duration patience = turns_.patience();
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, patience, [this] { return !waiting_.empty() || stopping_; });
  items = std::exchange(waiting_, {});
  if (std::exchange(missed_, false)) turns_.miss();
  return !stopping_ || !items.empty();
}

void Core::run() {
  for (std::vector<driver::Item> items; take(items);) {
    const bool was_well = turns_.health().ok;
    auto outcome = turns_.turn(std::move(items), watchers.load() > 0);
    log_health(was_well);
    if (!outcome.delivery.empty()) deliver_(std::move(outcome.delivery));
    if (ended_) {
      for (const cluster::JobId id : outcome.ended) ended_(turns_.state().jobs.at(id));
    }
    for (auto& answer : outcome.answers) answer.reply(std::move(answer.result));
    for (const Query& query : outcome.queries) turns_.answer(query);
    turns_.rest();
  }
}

void Core::log_health(bool was_well) const {
  const wire::StoreHealth& health = turns_.health();
  if (was_well && !health.ok) log::error("cannot store: {}", health.error);
  if (!was_well && health.ok) log::warning("the store works again");
}

}  // namespace tutti::controller
