#include "cli/follow.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/local_time.hpp"
#include "cli/log_printer.hpp"
#include "cli/terminal.hpp"
#include "cli/wait_reasons.hpp"
#include "control/wire/replies.hpp"

namespace tutti::cli {
namespace {

// For a node that was away when its job ended.
constexpr auto missing_patience = std::chrono::seconds(5);
// Of a command that follows nothing.
constexpr auto silence_max = std::chrono::seconds(60);

std::atomic<int> interrupts{0};
std::atomic<bool> told_to_go{false};
void count_interrupt(int) { ++interrupts; }
void leave(int) { told_to_go = true; }

class Follower {
 public:
  Follower(Cluster& cluster, const FollowOptions& options)
      : cluster_(cluster),
        options_(options),
        printer_({.prefix = options.prefix,
                  .terminal = isatty(STDOUT_FILENO) == 1,
                  .raw = options.raw,
                  .label = options.label,
                  .live_line = options.live_line}),
        wait_reasons_(cluster, options.job) {}

  Result<int> run(bool to_the_end) {
    if (to_the_end && options_.cancels) {
      ::signal(SIGINT, count_interrupt);
      ::signal(SIGTERM, leave);
      ::signal(SIGHUP, leave);
      ::signal(SIGPIPE, SIG_IGN);  // that it is not followed any more is to be said
    }
    heard();
    for (;;) {
      forget_missing();
      // A line that a stream has begun is ended by the next; what is left at the end is printed as it is.
      auto done = cluster_.client().events(
          path(to_the_end), [this](auto event, auto data) { return on(event, data); },
          [this, to_the_end] {
            if (options_.tells_wait) wait_reasons_.look(job_);
            return look_at_silence(to_the_end) && answer_interrupts() && (!to_the_end || is_read());
          });
      if (unread_) leave_unread();
      // While the controller is away there is no stream that would look at Ctrl-C.
      answer_interrupts();
      const bool over = to_the_end ? finished_ && done && (is_complete() || !comes_again()) : done.ok();
      if (over || left_) {
        printer_.finish();
        for (const std::string& text : held_notes_) note_once(text);
      }
      if (left_) return exit_interrupted;
      // What is told there of a job with this id is told of another one.
      if (cluster_.client().met_another()) {
        printer_.finish();
        return std::move(done).error().as(ErrorCode::failed);
      }
      if (unanswered_)
        return failed("it does not answer")
            .within("controller " + cluster_.address())
            .remedy("`tutti status` tells when it does again");
      if (missing_) return why_missing().within("job " + options_.job);
      if (printer_.failure() != 0 && options_.only_logs)
        return failed_errno("cannot be written", printer_.failure()).within("standard output");
      if (over && (!to_the_end || options_.only_logs)) return is_complete() ? exit_success : exit_failed;
      // Whoever may not see it now may not in a while, either.
      if (const int status = cluster_.client().refusal_status(); !done && (status == 401 || status == 403)) {
        printer_.finish();
        return failed(
                   "it does not let this token in any more: it was revoked, has expired, or its user is "
                   "blocked")
            .within("controller " + cluster_.address())
            .remedy("`tutti login`, or TUTTI_TOKEN_FILE with one that is good; the job goes on without that");
      }
      // A stream that broke may have had more to tell; so may a node that was away for a moment.
      if (over) return end();
      if (std::chrono::steady_clock::now() > heard_at_ + options_.reconnect_for ||
          (!done && !seen_ && !options_.was_there && !refused_for_now())) {
        printer_.finish();
        return done ? failed("the stream ended") : std::move(done).error();
      }
      if (!is_read()) leave_unread();
      std::this_thread::sleep_for(reconnect_every);
    }
  }

 private:
  // A quiet job would be followed for ever, for a reader that has gone.
  bool is_read() {
    unread_ = unread_ || (options_.logs && nobody_reads());
    return !unread_;
  }

  [[noreturn]] void leave_unread() const {
    if (options_.cancels)
      say("nobody reads its log any more, and it is not followed; `tutti wait " + options_.job +
          "` waits for its end");
    end_unread();
  }

  // It is there, and says when to come again.
  bool refused_for_now() {
    if (cluster_.client().retry_after_seconds() == 0) return false;
    if (!std::exchange(refusal_said_, true))
      print_note("controller " + cluster_.address() + " : it cannot answer now; asking again");
    return true;
  }

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
    const Duration told_after = seen_ ? options_.silence_told : options_.first_silence_told;
    if (silent > told_after && !std::exchange(silence_said_, true))
      print_note("controller " + cluster_.address() + " : it does not answer; waiting for it");
    unanswered_ = silent > (to_the_end ? Duration(options_.reconnect_for) : Duration(silence_max));
    return !unanswered_;
  }

  // Once something has come, the rest is found by its place in the log, and not by counting lines from its
  // end.
  std::string path(bool to_the_end) const {
    return "/api/v1/jobs/" + options_.job +
           "/logs?rank=" + std::to_string(options_.logs ? options_.rank : 1 << 30) +
           (log_seen_ || options_.tail_lines < 0 ? "" : "&tail=" + std::to_string(options_.tail_lines)) +
           (to_the_end ? "&follow=1" : "");
  }

  // The next stream reads the last attempt anew, and while the job waits for its next one, that before. What
  // is missing of others stays so.
  void forget_missing() {
    const bool waits = job_.value("state", "") == "queued";
    std::erase_if(missing_attempts_, [&](int attempt) { return attempt >= attempt_ - (waits ? 1 : 0); });
    held_notes_.clear();
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
    unread_ = unread_ || printer_.failure() == EPIPE;
    // How a job ends is worth waiting for without its log; the log alone is not.
    const bool in_vain = unread_ || (printer_.failure() != 0 && options_.only_logs);
    // A job that prints without a pause leaves no idle moment to look at Ctrl-C.
    return answer_interrupts() && !missing_ && !in_vain;
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
    const bool whole = options_.tail_lines < 0 || piece.attempt != first_attempt_;
    const std::uint64_t missing = printer_.take(piece, whole);
    if (missing == 0) return;
    gap_ = true;
    std::fprintf(
        stderr,
        "tutti: job %s : %llu bytes of rank %d's log are missing here: a node keeps the last 64 MiB\n",
        options_.job.c_str(), static_cast<unsigned long long>(missing), piece.rank);
  }

  void on_note(const nlohmann::json& body) {
    const std::string text = body.value("text", "");
    const bool missing = body.value("missing", false);
    if (missing) missing_attempts_.insert(body.value("attempt", 0));
    // Of a job that is over it may come yet: the node may only have been away for a moment.
    if (missing && finished_) {
      held_notes_.push_back(text);
    } else {
      note_once(text);
    }
  }

  // Although each new stream says it again.
  void note_once(const std::string& text) {
    if (noted_.insert(text).second) print_note(text);
  }

  void on_job(const nlohmann::json& job) {
    missing_ = job.empty();
    const int attempt = job.value("attempt", 0);
    if (attempt > attempt_) {
      printer_.finish();
      if (options_.says_end)
        print_note("job " + options_.job + " : " + with_local_times(job.value("reason", "")));
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

  // The stream only says that there is none; whether there was one is told who asks for it.
  Error why_missing() {
    auto shown = cluster_.get("jobs/" + url_encode(options_.job));
    return shown ? failed("it came while it was looked for").remedy("ask again") : std::move(shown).error();
  }

  void say(const std::string& what) const {
    std::fputc('\n', stderr);
    print_note("job " + options_.job + " : " + what);
  }

  Result<int> end() const {
    const std::string state = job_.value("state", "");
    if (state != "succeeded" && options_.says_end) {
      print_note("job " + options_.job + " : " + state + ": " + with_local_times(job_.value("reason", "")));
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
  WaitReasons wait_reasons_;
  nlohmann::json job_ = nlohmann::json::object();
  std::chrono::steady_clock::time_point heard_at_;
  bool silence_said_ = false;
  bool refusal_said_ = false;
  bool says_alive_ = false;  // the controller tells that it is there, also when nothing happens
  bool unanswered_ = false;
  bool unread_ = false;  // nobody reads the log that is printed
  int attempt_ = 0;
  int answered_ = 0;
  int first_attempt_ = 0;
  bool log_seen_ = false;
  bool gap_ = false;                // a part of a log was not kept
  std::set<int> missing_attempts_;  // whose logs this stream has not all of
  std::set<std::string> noted_;
  std::vector<std::string> held_notes_;  // of this stream, until nothing more is waited for
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
