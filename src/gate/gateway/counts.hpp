// What a gateway counts about itself, as Prometheus reads it. Used by its loop only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "gate/gateway/backends.hpp"
#include "gate/quota/quota.hpp"
#include "serve/server/metrics.hpp"

namespace tutti::gate {

struct Counts {
  std::map<int, std::uint64_t> responses;  // by HTTP status
  std::uint64_t asked_again = 0;           // requests that were asked of another one
  std::uint64_t streams_continued = 0;     // by another one, in the middle
  std::uint64_t streams_broken = 0;        // that nobody could go on with
  std::uint64_t cut_off = 0;               // requests whose client left, or read too slowly
  serve::Histogram first_byte;             // from a request to the first byte of its answer
  serve::Histogram whole_request;

  std::string text(std::size_t requests, std::size_t waiting, std::span<const BackendView> backends) const;
};

// What keys have used, by their names.
std::string text_of_usage(const std::map<std::string, KeyUsage>& usage);

}  // namespace tutti::gate
