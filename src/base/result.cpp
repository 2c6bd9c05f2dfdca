#include "base/result.hpp"

#include <cstring>

namespace tutti {

Error Error::within(std::string_view doing) && {
  context_ = context_.empty() ? std::string(doing) : std::string(doing) + ": " + context_;
  return std::move(*this);
}

Error Error::as(ErrorCode code) && {
  code_ = code;
  return std::move(*this);
}

Error Error::remedy(std::string_view advice) && {
  if (remedy_.empty()) remedy_ = advice;
  return std::move(*this);
}

std::string Error::text() const { return context_.empty() ? message_ : context_ + " : " + message_; }

Error failed_errno(std::string_view what, int error_number) {
  char buffer[256];
  return failed(std::string(what) + ": " + strerror_r(error_number, buffer, sizeof buffer));
}

}  // namespace tutti
