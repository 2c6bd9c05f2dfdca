// Answers questions to the scheduler beside the core, whose loop they would hold up in a large cluster. One
// thread of its own; questions come from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "control/cluster/explain.hpp"

namespace tutti::controller {

constexpr std::size_t waiting_questions_max = 16;  // each holds a copy of the queue
// So long an answer may be looked for, and so long if others wait for theirs: then it says what is known.
constexpr Duration answer_time_max = 1s;
constexpr Duration answer_time_in_line_max = 200ms;

class Explainer {
 public:
  // Runs on the explainer's thread, or at once with an error if too many wait or there is no such question.
  using Reply = std::function<void(Result<sched::Explanation>)>;
  // Whether nobody waits for the answer any more. Asked on any thread.
  using IsOver = std::function<bool()>;

  Explainer();
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;
  ~Explainer() { stop(); }

  // Whoever still waits gets no answer.
  void stop();

  // Puts the question together: on the asker's thread, and only if there is room for one more in the line.
  using Make = std::function<Result<cluster::Question>()>;

  // The line moves one by one; who has left it is passed over.
  void ask(const Make& make, Reply reply, IsOver is_over);

 private:
  struct Item {
    cluster::Question question;
    Reply reply;
    IsOver is_over;
  };

  bool has_room();
  sched::Explanation answer(const Item& item) const;
  void run();

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<Item> waiting_;
  std::size_t being_asked_ = 0;  // have a place in the line, and are put together
  std::atomic<bool> others_wait_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
