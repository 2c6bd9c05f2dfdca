// A rank's line to the hub: what all ranks tell one another, faults, and answers to inquests. It has one
// thread, which sleeps unless the hub has something to say. Any thread may call it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/fault.hpp"
#include "comm/frame.hpp"
#include "comm/socket.hpp"
#include "comm/verdict.hpp"

namespace tutti::comm {

class Control {
 public:
  // Answers an inquest; called on the control thread.
  using Answer = std::function<Report(const Question&)>;

  // Who this rank says it is.
  struct Seat {
    int rank = 0;
    int size = 1;
    std::string node;
    std::string secret{};  // of the world; none: everybody is believed
  };
  // Dials until the deadline: the hub's rank may start late. Returns when the hub has let it in.
  static Result<std::unique_ptr<Control>> connect(const std::string& host, std::uint16_t port,
                                                  const Seat& seat, Clock::time_point deadline, Fault& fault);

  ~Control();

  // Of this side: the road that leads to the other ranks.
  Result<std::string> local_address() const { return comm::local_address(socket_); }

  // Says goodbye and ends the thread: from here on no duty is called.
  void leave();

  // What the control thread does for its rank; all three are called on that thread.
  struct Duties {
    Answer answer;
    std::function<void()> watch;                         // now and then
    std::function<void(const std::string& text)> heard;  // a verdict that is no fault
  };
  void begin(Duties duties);

  // Tells `count` ranks what this one, the `index`th, has to say, and returns what all say. Every one of them
  // must call it with the same tag. The error names who is missing, as indices.
  struct Missing {
    std::vector<std::uint32_t> indices;
  };
  Result<std::vector<std::string>> exchange(std::uint64_t tag, std::uint32_t count, std::uint32_t index,
                                            std::string_view told, Clock::time_point deadline,
                                            Missing* missing = nullptr);

  // Tells all ranks that this one gives up.
  void abort(std::string_view why);

  // Has the hub find out who is to blame; the verdict becomes the fault. False if there is no hub that
  // answers until the deadline.
  bool ask(const Question& question, Clock::time_point deadline);

  // Has the hub find out without consequences; the verdict is heard later.
  void wonder(const Question& question);

  // Waits for a fault that others have surely noticed too.
  bool wait_fault(Clock::time_point deadline);

 private:
  Control(Socket socket, Fault& fault);

  struct Answered {
    bool done = false;
    std::vector<std::string> told;
    std::vector<std::uint32_t> missing;
  };

  Result<> introduce(const Seat& seat, Clock::time_point deadline);
  Result<Frame> next_frame(Clock::time_point deadline);
  void handle_frames();
  void run();
  void look();
  Duties current_duties();
  void handle(FrameKind kind, std::string_view content);
  void handle_exchanged(std::string_view content);
  void handle_missing(std::string_view content);
  void send(FrameKind kind, std::string_view content);

  Socket socket_;
  Fault& fault_;
  FrameReader reader_;  // of connect(), then of the thread
  int stop_ = -1;

  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Answered> waiting_;
  Duties duties_;
  bool hub_gone_ = false;
  std::thread thread_;
};

}  // namespace tutti::comm
