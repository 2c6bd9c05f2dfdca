// Boost behind Loop. For this module's own files only.
#pragma once

#include <boost/asio/io_context.hpp>

#include "net/http/loop.hpp"

namespace tutti::net {

struct Loop::Core {
  boost::asio::io_context context{1};
};

class Loop::Handle {
 public:
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  virtual ~Handle() = default;
};

}  // namespace tutti::net
