#include "gate/gateway/counts.hpp"

#include <utility>
#include <vector>

namespace tutti::gate {
namespace {

constexpr const char* prefix = "tutti_gateway_";

// Its samples: labels ("" for none) and values.
using Samples = std::vector<std::pair<std::string, std::int64_t>>;

void write(const char* name, const char* type, const char* help, const Samples& samples, std::string& out) {
  const std::string full = std::string(prefix) + name;
  out += "# HELP " + full + " " + help + "\n# TYPE " + full + " " + type + "\n";
  for (const auto& [labels, value] : samples) out += full + labels + " " + std::to_string(value) + "\n";
}

// Names are of addresses, with nothing in them that would end a label.
Samples of_each(std::span<const BackendView> backends, std::int64_t (*value)(const BackendView&)) {
  Samples samples;
  for (const BackendView& backend : backends)
    samples.emplace_back("{backend=\"" + backend.name + "\"}", value(backend));
  return samples;
}

}  // namespace

std::string Counts::text(std::size_t requests, std::size_t waiting,
                         std::span<const BackendView> backends) const {
  std::string out;
  Samples by_status;
  for (const auto& [status, count] : responses)
    by_status.emplace_back("{status=\"" + std::to_string(status) + "\"}", count);
  const auto count = [&](const char* name, const char* help, std::uint64_t value) {
    write(name, "counter", help, {{"", static_cast<std::int64_t>(value)}}, out);
  };
  const auto gauge = [&](const char* name, const char* help, std::size_t value) {
    write(name, "gauge", help, {{"", static_cast<std::int64_t>(value)}}, out);
  };
  write("responses_total", "counter", "answers by HTTP status", by_status, out);
  count("asked_again_total", "requests that were asked of another backend", asked_again);
  count("streams_continued_total", "streams that another backend went on with", streams_continued);
  count("streams_broken_total", "streams that ended because nobody could go on with them", streams_broken);
  count("cut_off_total", "requests whose client left or read too slowly", cut_off);
  gauge("requests_unfinished", "requests that are not answered yet", requests);
  gauge("requests_waiting", "requests that wait until somebody can be asked", waiting);
  write("backend_ready", "gauge", "1 if it can be asked",
        of_each(backends, [](const BackendView& backend) { return std::int64_t{backend.is_ready}; }), out);
  write("backend_requests", "gauge", "requests that it has",
        of_each(backends,
                [](const BackendView& backend) { return static_cast<std::int64_t>(backend.requests); }),
        out);
  write("backend_outstanding_tokens", "gauge", "what it has to do, in tokens of prompts, about",
        of_each(backends, [](const BackendView& backend) { return backend.outstanding_tokens; }), out);
  write("backend_failures_total", "counter", "times that it could not be reached or broke off",
        of_each(backends,
                [](const BackendView& backend) { return static_cast<std::int64_t>(backend.failures); }),
        out);
  first_byte.write(prefix, "first_byte_seconds", "from a request to the first byte of its answer", out);
  whole_request.write(prefix, "request_seconds", "from a request to its last byte", out);
  return out;
}

std::string text_of_usage(const std::map<std::string, KeyUsage>& usage) {
  std::string out;
  const auto each = [&](const char* name, const char* type, const char* help, const auto& value) {
    Samples samples;
    for (const auto& [key, used] : usage)
      samples.emplace_back("{key=\"" + key + "\"}", static_cast<std::int64_t>(value(used)));
    write(name, type, help, samples, out);
  };
  each("key_requests_total", "counter", "requests of a key that were let in",
       [](const KeyUsage& used) { return used.requests; });
  each("key_refused_total", "counter", "requests of a key that were too many for it",
       [](const KeyUsage& used) { return used.refused; });
  each("key_tokens_total", "counter", "tokens that its requests have taken, about",
       [](const KeyUsage& used) { return used.tokens; });
  each("key_tokens_today", "gauge", "the same since the day began, in UTC",
       [](const KeyUsage& used) { return used.tokens_today; });
  return out;
}

}  // namespace tutti::gate
