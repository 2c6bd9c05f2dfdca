#include "serve/server/infer_metrics.hpp"

namespace tutti::serve {

std::string InferMetrics::text(const RunnerCounts& counts, bool draining) const {
  std::string out;
  write_responses(responses, out);
  const auto count = [&](const char* name, const char* help, std::int64_t value) {
    write_metric(name, "counter", help, value, out);
  };
  const auto gauge = [&](const char* name, const char* help, std::int64_t value) {
    write_metric(name, "gauge", help, value, out);
  };
  count("cut_off_total", "requests whose client left", static_cast<std::int64_t>(cut_off));
  gauge("requests_waiting", "requests that wait for others or for their turn", counts.waiting);
  gauge("requests_running", "requests that are being computed", counts.running);
  count("batches_total", "batches that were computed", counts.batches);
  count("rows_total", "rows of those batches", counts.rows);
  count("finished_requests_total", "requests that came to an end", counts.finished);
  count("failed_requests_total", "requests that the model could not answer", counts.failed);
  count("computed_alone_total", "requests that were computed again because their batch had failed",
        counts.again_alone);
  count("worker_restarts_total", "workers that had to be started again", counts.program.restarts);
  gauge("ready", "1 while the model can compute", counts.program.is_ready ? 1 : 0);
  gauge("draining", "1 while it takes no more requests", draining ? 1 : 0);
  whole_request.write(engine_prefix, "request_seconds", "from a request to its answer", out);
  return out;
}

}  // namespace tutti::serve
