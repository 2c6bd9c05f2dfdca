// Answers questions to the scheduler beside the core, whose loop they would hold up in a large cluster. One
// thread of its own; questions come from any.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "control/cluster/explain.hpp"

namespace tutti::controller {

constexpr std::size_t waiting_questions_max = 16;  // each holds a copy of the queue

class Explainer {
 public:
  // Runs on the explainer's thread, or at once with an error if too many wait.
  using Reply = std::function<void(Result<sched::Explanation>)>;

  Explainer();
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;
  ~Explainer() { stop(); }

  // Whoever still waits gets no answer.
  void stop();

  void ask(cluster::Question question, Reply reply);

 private:
  struct Item {
    cluster::Question question;
    Reply reply;
  };

  void run();

  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Item> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
