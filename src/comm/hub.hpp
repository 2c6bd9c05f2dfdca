// Where the ranks of a world meet: a small server in rank 0's process, with one connection for each rank that
// has shown that it has the secret of the world, if there is one. It
// hands out what all ranks tell one another, notices at once when a connection ends without a farewell, and
// holds the inquest when an operation does not come to its end. One thread of its own.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "base/time.hpp"
#include "comm/socket.hpp"

namespace tutti::comm {

class Hub {
 public:
  // Takes over the listener. At its end the hub stays this long for ranks that are still there: they may be
  // making groups, and only lose their meeting point after it.
  static Result<std::unique_ptr<Hub>> start(Socket listener, int ranks, Duration linger,
                                            const std::string& secret = "");

  // Ends the thread when all ranks have left, or with a goodbye to those that have not.
  ~Hub();

 private:
  Hub() = default;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace tutti::comm
