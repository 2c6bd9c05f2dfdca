#include "cli/bench_serve.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files/open_files.hpp"
#include "cli/command.hpp"
#include "cli/terminal.hpp"
#include "cli/url.hpp"
#include "lab/asking/asking.hpp"
#include "serve/server/key.hpp"

namespace tutti::cli {
namespace {

constexpr std::int64_t concurrency_default = 16;
constexpr std::int64_t timed_concurrency_default = 1'024;
constexpr std::int64_t requests_default = 128;
constexpr std::int64_t tokens_default = 128;  // of a prompt, and of an answer
constexpr std::int64_t frame_tokens = 2;

std::atomic<bool> asking_stopped{false};
void stop_asking(int) { asking_stopped = true; }

double milliseconds(Duration duration) { return in_seconds(duration) * 1e3; }

nlohmann::json spread_json(const asking::Spread& spread) {
  return {{"p50_ms", milliseconds(spread.middle)},
          {"p99_ms", milliseconds(spread.late)},
          {"max_ms", milliseconds(spread.latest)}};
}

void print_spread(const char* name, const asking::Spread& spread) {
  std::printf("  %-14s p50 %9.2f ms   p99 %9.2f ms   max %9.2f ms\n", name, milliseconds(spread.middle),
              milliseconds(spread.late), milliseconds(spread.latest));
}

void print_report(const asking::Report& report, const asking::Targets& targets, Duration took) {
  std::printf("%zu requests in %.2f s: %.2f requests/s, %.0f output tokens/s, %.0f prompt tokens/s\n",
              report.answered, in_seconds(took), report.requests_per_second, report.output_tokens_per_second,
              report.prompt_tokens_per_second);
  print_spread("first token", report.first_token);
  print_spread("next token", report.next_token);
  print_spread("longest pause", report.pause);
  print_spread("whole answer", report.whole);
  std::printf(
      "  good           %.2f requests/s, %.1f%% of all, within %s to the first token and %s a token\n",
      report.good_per_second, report.good_share * 100, format_duration(targets.first_token).c_str(),
      format_duration(targets.next_token).c_str());
  for (const auto& [problem, count] : report.problems)
    print_text("  " + std::to_string(count) + " failed: " + problem + "\n");
}

}  // namespace

void BenchServe::declare(config::Flags& flags) {
  flags.add("trace", trace_, "serve: ask as this trace does (CSV: arrival_s, input_tokens, output_tokens)");
  flags.add("speed", speed_, "serve: so many times as fast as the trace (default: 1)");
  flags.add("rate", rate_,
            "serve: requests a second, independent of one another (default: when another is answered)");
  flags.add("concurrency", concurrency_,
            "serve: requests at once at most (default: 16; with times of their own 1024)",
            {.min = 1, .max = static_cast<std::int64_t>(asking::concurrency_max)});
  flags.add("requests", requests_, "serve: how many (default: 128, or all of the trace)",
            {.min = 1, .max = 10'000'000});
  flags.add("prompt-tokens", prompt_tokens_, "serve: of each prompt (default: 128)",
            {.min = 1, .max = asking::tokens_max});
  flags.add("output-tokens", output_tokens_, "serve: of each answer (default: 128)",
            {.min = 1, .max = asking::tokens_max});
  flags.add("context", context_, "serve: cut a trace's requests to so many tokens (default: do not)",
            {.min = 2, .max = asking::tokens_max});
  flags.add("first-token", targets_.first_token,
            "serve: a good request has its first token by then (default: 500ms)");
  flags.add("next-token", targets_.next_token, "serve: and each further one in this time (default: 30ms)");
  flags.add("patience", patience_,
            "serve: give an answer up when nothing more of it comes for so long, 0s never (default: 10m)");
  flags.add("seed", seed_, "serve: of prompts and arrivals (default: 1)", {.min = 0});
  flags.add("model", model_, "serve: the model, by its name (default: the first that the server lists)");
  flags.add("key-file", key_file_, "serve: the server's key");
  flags.add("ca-file", ca_file_, "serve: the certificate authority of an https server (PEM)");
}

// What nobody asked for is made to fit; what somebody asked for is not changed.
Result<asking::Arrival> BenchServe::sizes_for(std::int64_t context) const {
  asking::Arrival sizes{.prompt_tokens = prompt_tokens_ > 0 ? prompt_tokens_ : tokens_default,
                        .output_tokens = output_tokens_ > 0 ? output_tokens_ : tokens_default};
  // A server may put a token or two of its own before a prompt.
  const std::int64_t room = context - frame_tokens;
  if (context == 0 || sizes.prompt_tokens + sizes.output_tokens <= room) return sizes;
  if (prompt_tokens_ == 0) sizes.prompt_tokens = output_tokens_ > 0 ? room - output_tokens_ : room / 2;
  if (output_tokens_ == 0) sizes.output_tokens = room - sizes.prompt_tokens;
  if (sizes.prompt_tokens < 1 || sizes.output_tokens < 1 || sizes.prompt_tokens + sizes.output_tokens > room)
    return invalid("the model has a context of " + std::to_string(context) + " tokens")
        .remedy("take fewer with --prompt-tokens and --output-tokens");
  print_note("the model has a context of " + std::to_string(context) + " tokens: prompts of " +
             std::to_string(sizes.prompt_tokens) + " and answers of " + std::to_string(sizes.output_tokens));
  return sizes;
}

Result<int> BenchServe::run(const std::string& url, bool json) const {
  if (!(speed_ > 0)) return invalid("--speed is above 0").within("command line");
  if (!(rate_ >= 0)) return invalid("--rate is not negative").within("command line");
  if (!trace_.empty() && rate_ > 0)
    return invalid("--trace and --rate exclude each other")
        .within("command line")
        .remedy("--speed scales a trace");
  auto target = parse_url(url, ca_file_);
  if (!target) return std::move(target).error();
  asking::Plan plan{.target = std::move(*target),
                    .is_timed = rate_ > 0 || !trace_.empty(),
                    .seed = static_cast<std::uint64_t>(seed_),
                    .patience = patience_};
  const std::int64_t concurrency = concurrency_ > 0 ? concurrency_
                                   : plan.is_timed  ? timed_concurrency_default
                                                    : concurrency_default;
  plan.concurrency = static_cast<std::size_t>(concurrency);
  if (!key_file_.empty()) {
    auto key = serve::read_key(key_file_);
    if (!key) return std::move(key).error();
    plan.key = std::move(*key);
  }
  auto model = asking::find_model(plan.target, plan.key, model_);
  if (!model) return std::move(model).error().within(url);
  plan.model = std::move(model->name);
  if (!trace_.empty()) {
    auto arrivals = asking::read_arrivals(
        trace_, {.speed = speed_, .context = context_, .count = static_cast<std::size_t>(requests_)});
    if (!arrivals) return std::move(arrivals).error();
    plan.arrivals = std::move(*arrivals);
  } else {
    const auto sizes = sizes_for(model->context);
    if (!sizes) return Error(sizes.error()).within(url);
    Prng random(plan.seed);
    plan.arrivals = asking::even_arrivals(
        static_cast<std::size_t>(requests_ > 0 ? requests_ : requests_default), *sizes, rate_, random);
  }
  ::signal(SIGINT, stop_asking);
  const bool shows = !json && isatty(STDERR_FILENO) == 1;
  files::raise_open_files();
  const auto answers = asking::ask_all(plan, [&](std::size_t done) {
    if (shows) std::fprintf(stderr, "\r%zu of %zu", done, plan.arrivals.size());
    return !asking_stopped.load();
  });
  if (shows) std::fprintf(stderr, "\r\033[K");
  if (!answers) return Error(answers.error()).within("bench serve");
  const asking::Asked& asked = *answers;
  const asking::Report report = asking::summarize(asked.samples, asked.took, targets_);
  if (json) {
    const nlohmann::json told{{"requests", asked.samples.size()},
                              {"answered", report.answered},
                              {"seconds", in_seconds(asked.took)},
                              {"requests_per_second", report.requests_per_second},
                              {"output_tokens_per_second", report.output_tokens_per_second},
                              {"prompt_tokens_per_second", report.prompt_tokens_per_second},
                              {"good_per_second", report.good_per_second},
                              {"good_share", report.good_share},
                              {"first_token", spread_json(report.first_token)},
                              {"next_token", spread_json(report.next_token)},
                              {"pause", spread_json(report.pause)},
                              {"whole", spread_json(report.whole)},
                              {"problems", report.problems}};
    std::printf("%s\n", told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    print_report(report, targets_, asked.took);
  }
  if (asking_stopped) return exit_interrupted;
  return report.problems.empty() ? exit_success : exit_failed;
}

}  // namespace tutti::cli
