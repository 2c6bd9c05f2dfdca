#include "serve/server/metrics.hpp"

#include <algorithm>

#include "base/json/write.hpp"

namespace tutti::serve {

void write_metric(const char* name, const char* type, const char* help, std::int64_t value,
                  std::string& out) {
  const std::string full = std::string(engine_prefix) + name;
  out += "# HELP " + full + " " + help + "\n# TYPE " + full + " " + type + "\n" + full + " " +
         std::to_string(value) + "\n";
}

void write_responses(const std::map<int, std::uint64_t>& by_status, std::string& out) {
  out +=
      "# HELP tutti_engine_responses_total answers by HTTP status\n"
      "# TYPE tutti_engine_responses_total counter\n";
  for (const auto& [status, count] : by_status)
    out += "tutti_engine_responses_total{status=\"" + std::to_string(status) + "\"} " +
           std::to_string(count) + "\n";
}

void Histogram::add(double seconds, std::uint64_t times) {
  const auto bucket = std::lower_bound(ends.begin(), ends.end(), seconds) - ends.begin();
  counts_[static_cast<std::size_t>(bucket)] += times;
  sum_ += seconds * static_cast<double>(times);
}

void Histogram::write(const std::string& prefix, const std::string& name, const std::string& help,
                      std::string& out) const {
  const std::string full = prefix + name;
  out += "# HELP " + full + " " + help + "\n# TYPE " + full + " histogram\n";
  std::uint64_t below = 0;
  for (std::size_t at = 0; at < counts_.size(); ++at) {
    below += counts_[at];
    const std::string end = at < ends.size() ? json::write(ends[at]) : "+Inf";
    out += full + "_bucket{le=\"" + end + "\"} " + std::to_string(below) + "\n";
  }
  out += full + "_sum " + json::write(sum_) + "\n" + full + "_count " + std::to_string(below) + "\n";
}

std::string Metrics::text(const EngineCounts& counts) const {
  const BatchCounts& batch = counts.batch;
  std::string out;
  write_responses(responses, out);
  const auto count = [&](const char* name, const char* help, std::int64_t value) {
    write_metric(name, "counter", help, value, out);
  };
  const auto gauge = [&](const char* name, const char* help, std::int64_t value) {
    write_metric(name, "gauge", help, value, out);
  };
  count("cut_off_total", "requests whose client left or read too slowly", static_cast<std::int64_t>(cut_off));
  gauge("sequences_running", "answers that are being computed", batch.running);
  gauge("sequences_waiting", "answers that wait for their turn", batch.waiting);
  gauge("requests_unfinished", "requests that were let in and are not finished", batch.requests);
  gauge("blocks", "blocks of the cache", batch.blocks);
  gauge("blocks_used", "blocks that hold tokens of running answers", batch.blocks_used);
  gauge("blocks_idle", "blocks that are kept for whoever begins alike", batch.blocks_idle);
  count("steps_total", "steps of the model", batch.steps);
  count("prompt_tokens_total", "tokens of prompts that were computed", batch.prompt_tokens);
  count("cached_tokens_total", "tokens of prompts that were found in the cache", batch.cached_tokens);
  count("generated_tokens_total", "tokens of answers", batch.generated_tokens);
  count("drafted_tokens_total", "tokens that were guessed", batch.drafted_tokens);
  count("accepted_tokens_total", "guessed tokens that were right", batch.accepted_tokens);
  count("preemptions_total", "answers that went back because no block was left", batch.preemptions);
  count("finished_requests_total", "requests that came to an end", batch.finished);
  count("model_failures_total", "steps that the model could not compute", counts.model_failures);
  count("model_losses_total", "times that the process of the model has ended", counts.model_losses);
  gauge("away", "1 while the process of the model is started again", counts.away ? 1 : 0);
  gauge("draining", "1 while it takes no more requests", counts.draining ? 1 : 0);
  first_token.write(engine_prefix, "first_token_seconds", "from a request to its first token", out);
  next_token.write(engine_prefix, "next_token_seconds", "from one token of an answer to the next", out);
  whole_request.write(engine_prefix, "request_seconds", "from a request to its last token", out);
  return out;
}

}  // namespace tutti::serve
