#include "cli/wait_reasons.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/local_time.hpp"
#include "cli/terminal.hpp"

namespace tutti::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto first_look_after = std::chrono::seconds(2);
// An answer costs the controller a trial of its scheduler: who waits for long asks less and less often.
constexpr auto look_every_min = std::chrono::seconds(5);
constexpr auto look_every_max = std::chrono::seconds(60);
constexpr Duration explanation_time_max = 2s;

}  // namespace

void WaitReasons::look(const nlohmann::json& job) {
  const std::string state = job.value("state", "");
  const bool waits = state == "queued" || state == "restarting" || state == "held";
  const auto now = Clock::now();
  if (!std::exchange(waits_, waits)) {
    next_look_ = now + first_look_after;
    look_every_ = look_every_min;
  }
  if (!waits || now < next_look_) return;
  next_look_ = now + look_every_;
  look_every_ = std::min<Duration>(2 * look_every_, look_every_max);
  std::string why = reason_now();
  if (why.empty()) why = job.value("reason", "");
  if (why.empty() || why == told_) return;
  told_ = why;
  print_note("job " + job_ + " : waits: " + with_local_times(why));
}

// "" if it is not known now.
std::string WaitReasons::reason_now() const {
  auto client = cluster_.another();
  const auto answer = client.request("GET", "/api/v1/jobs/" + job_ + "/explain", "", explanation_time_max);
  if (!answer || answer->status != 200) return "";
  const auto view = nlohmann::json::parse(answer->body, nullptr, false);
  return view.is_object() && !view.value("starts_now", false) ? view.value("why", "") : "";
}

}  // namespace tutti::cli
