// Answers questions to the scheduler beside the core, whose loop they would hold up in a large cluster. One
// thread of its own; questions come from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/portions.hpp"
#include "control/cluster/explain.hpp"

namespace tutti::controller {

// Each may hold a copy of the queue, and what was asked: of one address never more than three times what is
// left.
constexpr std::size_t questions_max = 16;
// So long an answer may be looked for, and so long if others wait for theirs: then it says what is known.
constexpr Duration answer_time_max = 1s;
constexpr Duration answer_time_in_line_max = 200ms;

class Explainer {
 public:
  // Runs on the explainer's thread, or at once with an error if there is no such question.
  using Reply = std::function<void(Result<sched::Explanation>)>;
  // Whether nobody waits for the answer any more. Asked on any thread.
  using IsOver = std::function<bool()>;

  Explainer();
  Explainer(const Explainer&) = delete;
  Explainer& operator=(const Explainer&) = delete;
  ~Explainer() { stop(); }

  // Whoever still waits gets no answer.
  void stop();

  // One of those who may ask, from before the question is put together until it is answered: whoever holds it
  // counts. Null if there are too many, of all or of this address.
  using Seat = std::shared_ptr<const void>;
  Seat seat(const std::string& address);

  // Puts the question together: on the asker's thread.
  using Make = std::function<Result<cluster::Question>()>;

  // The line moves one by one; who has left it is passed over.
  void ask(Seat seat, const Make& make, Reply reply, IsOver is_over);

 private:
  struct Item {
    cluster::Question question;
    Reply reply;
    IsOver is_over;
    Seat seat;
  };
  struct Seats {
    std::mutex mutex;
    Portions taken{questions_max};  // by address
  };

  void drop_those_who_left();
  sched::Explanation answer(const Item& item) const;
  void run();

  const std::shared_ptr<Seats> seats_ = std::make_shared<Seats>();
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<Item> waiting_;
  std::atomic<bool> others_wait_ = false;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::controller
