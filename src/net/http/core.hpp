// Boost behind Loop. For this module's own files only.
#pragma once

#include <boost/asio/io_context.hpp>

#include "net/http/loop.hpp"

namespace tutti::net {

struct Loop::Core {
  boost::asio::io_context context{1};
  bool in_task = false;  // of those that the loop was given, or in one that has thrown

  template <class Task>
  void run_task(const Task& task) {
    in_task = true;
    task();
    in_task = false;
  }
};

class Loop::Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  virtual ~Handle() = default;
};

}  // namespace tutti::net
