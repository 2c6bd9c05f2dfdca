#include "cli/follow.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/visible.hpp"
#include "cli/command.hpp"
#include "cli/terminal.hpp"
#include "control/wire/replies.hpp"

namespace tutti::cli {
namespace {

constexpr auto reconnect_for = std::chrono::minutes(10);

std::atomic<int> interrupts{0};
void count_interrupt(int) { ++interrupts; }

// Prints what arrives line by line. After a reconnect the log comes again from its beginning: what was
// already printed of this attempt is passed over.
class LogPrinter {
 public:
  LogPrinter(const FollowOptions& options, bool terminal)
      : prefix_(options.prefix),
        tames_(terminal && !options.raw),
        label_(options.label),
        live_line_(terminal ? options.live_line : "") {}

  void begin_stream() {
    for (auto& [rank, state] : ranks_) state.to_skip = state.printed;
  }
  void begin_attempt() { ranks_.clear(); }

  void take(std::int32_t rank, std::string_view text) {
    Rank& state = ranks_[rank];
    const std::size_t skipped = std::min(state.to_skip, text.size());
    state.to_skip -= skipped;
    text.remove_prefix(skipped);
    state.printed += text.size();
    while (!text.empty()) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos) {
        state.partial += text;
        return;
      }
      line(rank, state.partial + std::string(text.substr(0, end)));
      state.partial.clear();
      text.remove_prefix(end + 1);
    }
    std::fflush(stdout);
  }

  void finish() {
    for (auto& [rank, state] : ranks_) {
      if (!state.partial.empty()) line(rank, state.partial);
      state.partial.clear();
    }
    if (std::exchange(live_shown_, false)) std::fputc('\n', stdout);
    std::fflush(stdout);
  }

 private:
  struct Rank {
    std::string partial;
    std::size_t printed = 0;
    std::size_t to_skip = 0;
  };

  void line(std::int32_t rank, const std::string& text) {
    const bool live = !live_line_.empty() && text.starts_with(live_line_);
    if (std::exchange(live_shown_, live)) std::fputs(live ? "\r\033[K" : "\n", stdout);
    if (prefix_) std::printf("[%s%d] ", label_.c_str(), rank);
    const std::string tamed = tames_ ? visible_log(text) : text;
    std::fwrite(tamed.data(), 1, tamed.size(), stdout);
    if (!live) std::fputc('\n', stdout);
  }

  bool prefix_;
  bool tames_;  // what was printed may be meant for the terminal: only text and colours pass
  std::string label_;
  std::string live_line_;
  bool live_shown_ = false;  // the cursor stands behind a line that the next one may replace
  std::map<std::int32_t, Rank> ranks_;
};

class Follower {
 public:
  Follower(Cluster& cluster, const FollowOptions& options)
      : cluster_(cluster), options_(options), printer_(options, isatty(STDOUT_FILENO) == 1) {}

  Result<int> run(bool to_the_end) {
    if (to_the_end && options_.cancels) ::signal(SIGINT, count_interrupt);
    std::string path = "/api/v1/jobs/" + options_.job +
                       "/logs?rank=" + std::to_string(options_.logs ? options_.rank : 1 << 30) +
                       "&tail=" + std::to_string(options_.tail_lines);
    if (to_the_end) path += "&follow=1";
    auto give_up_at = std::chrono::steady_clock::now() + reconnect_for;
    for (;;) {
      printer_.begin_stream();
      auto done = cluster_.client().events(
          path, [this](auto event, auto data) { return on(event, data); },
          [this] { return answer_interrupts(); });
      printer_.finish();
      // While the controller is away there is no stream that would look at Ctrl-C.
      answer_interrupts();
      if (left_) return exit_interrupted;
      if (missing_)
        return invalid("there is no job " + options_.job)
            .within("job " + options_.job)
            .remedy("`tutti jobs --all` lists them");
      if (!to_the_end && done) return exit_success;
      if (finished_) return end();
      if (std::chrono::steady_clock::now() > give_up_at || (!done && !seen_))
        return done ? failed("the stream ended") : std::move(done).error();
      std::this_thread::sleep_for(reconnect_every);
    }
  }

 private:
  bool on(std::string_view event, std::string_view data) {
    const auto body = nlohmann::json::parse(data, nullptr, false);
    if (body.is_discarded()) return true;
    seen_ = true;
    if (event == "log") printer_.take(body.value("rank", 0), body.value("text", ""));
    if (event == "note") print_note(body.value("text", ""));
    if (event == "job") on_job(body);
    // A job that prints without a pause leaves no idle moment to look at Ctrl-C.
    return answer_interrupts() && !missing_;
  }

  void on_job(const nlohmann::json& job) {
    missing_ = job.empty();
    const int attempt = job.value("attempt", 0);
    if (attempt > attempt_) {
      printer_.finish();
      if (options_.says_end) print_note("job " + options_.job + " : " + job.value("reason", ""));
      if (job.value("state", "") != "restarting") printer_.begin_attempt();
      attempt_ = attempt;
    }
    finished_ = job.contains("exit_code");
    job_ = job;
  }

  // The first Ctrl-C asks, the second cancels, the third leaves. False: leave.
  bool answer_interrupts() {
    const int count = interrupts.load();
    while (answered_ < count && !left_) {
      ++answered_;
      if (answered_ == 1) {
        say("still runs; Ctrl-C again cancels it");
      } else if (answered_ == 2) {
        cancel();
      } else {
        left_ = true;
      }
    }
    return !left_;
  }

  void cancel() {
    say("is being cancelled; Ctrl-C again leaves without waiting");
    auto client = cluster_.another();
    const auto answer =
        client.request("POST", "/api/v1/jobs/" + options_.job + "/cancel?by=" + url_encode(user_name()), "",
                       cancel_time_max);
    cancelled_ = answer && answer->status == 200;
    if (!answer) {
      say("cannot be cancelled now: " + answer.error().text());
    } else if (!cancelled_) {
      say("cannot be cancelled: " + wire::decode_error(answer->status, answer->body).text());
    }
  }

  void say(const std::string& what) const {
    std::fputc('\n', stderr);
    print_note("job " + options_.job + " : " + what);
  }

  Result<int> end() const {
    const std::string state = job_.value("state", "");
    if (state != "succeeded" && options_.says_end) {
      print_note("job " + options_.job + " : " + state + ": " + job_.value("reason", ""));
      std::fprintf(stderr, "  `tutti show %s` tells more\n", options_.job.c_str());
    }
    return cancelled_ && state == "cancelled" ? exit_interrupted : job_.value("exit_code", 1);
  }

  Cluster& cluster_;
  const FollowOptions& options_;
  LogPrinter printer_;
  nlohmann::json job_;
  int attempt_ = 0;
  int answered_ = 0;
  bool seen_ = false;
  bool missing_ = false;
  bool finished_ = false;
  bool left_ = false;
  bool cancelled_ = false;  // by Ctrl-C
};

}  // namespace

Result<int> follow(Cluster& cluster, const FollowOptions& options) {
  return Follower(cluster, options).run(true);
}
Result<int> print_logs(Cluster& cluster, const FollowOptions& options) {
  return Follower(cluster, options).run(false);
}

}  // namespace tutti::cli
