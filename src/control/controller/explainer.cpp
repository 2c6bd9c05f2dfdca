#include "control/controller/explainer.hpp"

#include <utility>

namespace tutti::controller {

Explainer::Explainer() : thread_([this] { run(); }) {}

void Explainer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Explainer::ask(cluster::Question question, Reply reply) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < waiting_questions_max) {
      waiting_.push_back({std::move(question), std::move(reply)});
      woken_.notify_one();
      return;
    }
  }
  reply(failed("too many ask why their jobs wait").remedy("try again in a moment"));
}

void Explainer::run() {
  for (;;) {
    std::vector<Item> items;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [this] { return !waiting_.empty() || stopping_; });
      if (stopping_) return;
      items = std::exchange(waiting_, {});
    }
    for (const Item& item : items) item.reply(item.question.answer());
  }
}

}  // namespace tutti::controller
