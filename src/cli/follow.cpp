#include "cli/follow.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/visible.hpp"
#include "cli/command.hpp"
#include "cli/terminal.hpp"
#include "control/wire/replies.hpp"

namespace tutti::cli {
namespace {

// For a node that was away when its job ended.
constexpr auto missing_patience = std::chrono::seconds(5);
// The controller speaks at least every five seconds (`alive`).
constexpr auto silence_told = std::chrono::seconds(15);
// Of a command that follows nothing.
constexpr auto silence_max = std::chrono::seconds(60);

std::atomic<int> interrupts{0};
std::atomic<bool> told_to_go{false};
void count_interrupt(int) { ++interrupts; }
void leave(int) { told_to_go = true; }

// A piece of a rank's log, as the controller sends it.
struct LogPiece {
  std::int32_t rank = 0;
  std::int32_t attempt = 0;
  std::uint64_t offset = 0;  // of its first byte in the log
  std::uint64_t bytes = 0;   // in the log: what is no UTF-8 has become something else in the text
  std::string_view text;
};

// Prints what arrives line by line. After a reconnect the log comes again from its beginning: what was
// already printed is passed over, by its place in the log.
class LogPrinter {
 public:
  LogPrinter(const FollowOptions& options, bool terminal)
      : prefix_(options.prefix),
        tames_(terminal && !options.raw),
        label_(options.label),
        live_line_(terminal ? options.live_line : "") {}

  // How many bytes of the log are missing in front of this piece. `whole`: it was asked for from its
  // beginning.
  std::uint64_t take(const LogPiece& piece, bool whole) {
    const Key key{piece.attempt, piece.rank};
    const bool known = ranks_.contains(key);
    Rank& state = ranks_[key];
    if (!known) state.next = whole ? 0 : piece.offset;
    const std::uint64_t missing = piece.offset > state.next ? piece.offset - state.next : 0;
    const std::uint64_t known_bytes = state.next > piece.offset ? state.next - piece.offset : 0;
    state.next = std::max(state.next, piece.offset + piece.bytes);
    std::string_view text = piece.text;
    text.remove_prefix(static_cast<std::size_t>(std::min<std::uint64_t>(known_bytes, text.size())));
    while (!text.empty()) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos) {
        state.partial += text;
        return missing;
      }
      line(piece.rank, state.partial + std::string(text.substr(0, end)));
      state.partial.clear();
      text.remove_prefix(end + 1);
    }
    std::fflush(stdout);
    return missing;
  }

  void finish() {
    for (auto& [key, state] : ranks_) {
      if (!state.partial.empty()) line(key.second, state.partial);
      state.partial.clear();
    }
    if (std::exchange(live_shown_, false)) std::fputc('\n', stdout);
    std::fflush(stdout);
  }

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  // attempt, rank
  struct Rank {
    std::string partial;
    std::uint64_t next = 0;  // the place in the log of what is to be printed next
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
  std::map<Key, Rank> ranks_;
};

class Follower {
 public:
  Follower(Cluster& cluster, const FollowOptions& options)
      : cluster_(cluster), options_(options), printer_(options, isatty(STDOUT_FILENO) == 1) {}

  Result<int> run(bool to_the_end) {
    if (to_the_end && options_.cancels) {
      ::signal(SIGINT, count_interrupt);
      ::signal(SIGTERM, leave);
      ::signal(SIGHUP, leave);
    }
    heard();
    for (;;) {
      missing_attempts_.clear();
      // A line that a stream has begun is ended by the next; what is left at the end is printed as it is.
      auto done = cluster_.client().events(
          path(to_the_end), [this](auto event, auto data) { return on(event, data); },
          [this, to_the_end] { return look_at_silence(to_the_end) && answer_interrupts(); });
      // While the controller is away there is no stream that would look at Ctrl-C.
      answer_interrupts();
      const bool over = to_the_end ? finished_ && done && (is_complete() || !comes_again()) : done.ok();
      if (over || left_) printer_.finish();
      if (left_) return exit_interrupted;
      if (unanswered_)
        return failed("it does not answer")
            .within("controller")
            .remedy("`tutti status` tells when it does again");
      if (missing_)
        return invalid("there is no job " + options_.job)
            .within("job " + options_.job)
            .remedy("`tutti jobs --all` lists them");
      if (over && (!to_the_end || options_.only_logs)) return is_complete() ? exit_success : exit_failed;
      // A stream that broke may have had more to tell; so may a node that was away for a moment.
      if (over) return end();
      if (std::chrono::steady_clock::now() > heard_at_ + options_.reconnect_for ||
          (!done && !seen_ && !options_.was_there)) {
        printer_.finish();
        return done ? failed("the stream ended") : std::move(done).error();
      }
      std::this_thread::sleep_for(reconnect_every);
    }
  }

 private:
  // However long it has been attached: patience counts from when the controller was last there.
  void heard() {
    heard_at_ = std::chrono::steady_clock::now();
    silence_said_ = false;
  }

  // One that is stopped keeps its connections open and says nothing. An older one says nothing between
  // events. False: it has been silent for too long.
  bool look_at_silence(bool to_the_end) {
    if (seen_ && !says_alive_) {
      heard();
      return true;
    }
    const auto silent = std::chrono::steady_clock::now() - heard_at_;
    if (silent > silence_told && !std::exchange(silence_said_, true))
      print_note("job " + options_.job + " : the controller has not answered for a while; waiting for it");
    unanswered_ = silent > (to_the_end ? Duration(options_.reconnect_for) : Duration(silence_max));
    return !unanswered_;
  }

  // Once something has come, the rest is found by its place in the log, and not by counting lines from its
  // end.
  std::string path(bool to_the_end) const {
    return "/api/v1/jobs/" + options_.job +
           "/logs?rank=" + std::to_string(options_.logs ? options_.rank : 1 << 30) +
           "&tail=" + std::to_string(log_seen_ ? 0 : options_.tail_lines) + (to_the_end ? "&follow=1" : "");
  }

  // All that was asked for has been printed.
  bool is_complete() const { return !options_.logs || (!gap_ && missing_attempts_.empty()); }

  bool comes_again() {
    if (gap_ || !missing_attempts_.contains(attempt_)) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!incomplete_since_) incomplete_since_ = now;
    return now - *incomplete_since_ < missing_patience;
  }

  bool on(std::string_view event, std::string_view data) {
    const auto body = nlohmann::json::parse(data, nullptr, false);
    if (body.is_discarded()) return true;
    seen_ = true;
    heard();
    if (event == "alive") says_alive_ = true;
    if (event == "log") on_log(body);
    if (event == "note" && options_.logs) on_note(body);
    if (event == "job") on_job(body);
    // A job that prints without a pause leaves no idle moment to look at Ctrl-C.
    return answer_interrupts() && !missing_;
  }

  void on_log(const nlohmann::json& body) {
    const std::string text = body.value("text", "");
    const LogPiece piece{.rank = body.value("rank", 0),
                         .attempt = body.value("attempt", 0),
                         .offset = body.value("offset", std::uint64_t{0}),
                         .bytes = body.value("bytes", std::uint64_t{0}),
                         .text = text};
    if (!log_seen_) first_attempt_ = piece.attempt;
    log_seen_ = true;
    const bool whole = options_.tail_lines == 0 || piece.attempt != first_attempt_;
    const std::uint64_t missing = printer_.take(piece, whole);
    if (missing == 0) return;
    gap_ = true;
    std::fprintf(
        stderr,
        "tutti: job %s : %llu bytes of rank %d's log are missing here: a node keeps the last 64 MiB\n",
        options_.job.c_str(), static_cast<unsigned long long>(missing), piece.rank);
  }

  void on_note(const nlohmann::json& body) {
    if (body.value("missing", false)) missing_attempts_.insert(body.value("attempt", 0));
    const std::string text = body.value("text", "");
    // Said once, although each new stream says it again.
    if (noted_.insert(text).second) print_note(text);
  }

  void on_job(const nlohmann::json& job) {
    missing_ = job.empty();
    const int attempt = job.value("attempt", 0);
    if (attempt > attempt_) {
      printer_.finish();
      if (options_.says_end) print_note("job " + options_.job + " : " + job.value("reason", ""));
      attempt_ = attempt;
    }
    finished_ = job.contains("exit_code");
    job_ = job;
  }

  // The first Ctrl-C asks, the second cancels, the third leaves. False: leave.
  bool answer_interrupts() {
    if (told_to_go && !left_) {
      say("goes on; `tutti cancel " + options_.job + "` ends it");
      left_ = true;
    }
    const int count = interrupts.load();
    while (answered_ < count && !left_) {
      ++answered_;
      if (answered_ == 1) {
        say("goes on; Ctrl-C again cancels it");
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
    const int code = cancelled_ && state == "cancelled" ? exit_interrupted : job_.value("exit_code", 1);
    // What an attempt printed that was lost with its node has been told; the job itself has succeeded.
    const bool complete = !options_.logs || (!gap_ && !missing_attempts_.contains(attempt_));
    return code == exit_success && !complete ? exit_failed : code;
  }

  Cluster& cluster_;
  const FollowOptions& options_;
  LogPrinter printer_;
  nlohmann::json job_;
  std::chrono::steady_clock::time_point heard_at_;
  bool silence_said_ = false;
  bool says_alive_ = false;  // the controller tells that it is there, also when nothing happens
  bool unanswered_ = false;
  int attempt_ = 0;
  int answered_ = 0;
  int first_attempt_ = 0;
  bool log_seen_ = false;
  bool gap_ = false;                // a part of a log was not kept
  std::set<int> missing_attempts_;  // whose logs this stream has not all of
  std::set<std::string> noted_;
  std::optional<std::chrono::steady_clock::time_point> incomplete_since_;
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
