#include "lab/asking/asking.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/clock/clock.hpp"
#include "base/json/parse.hpp"
#include "base/json/write.hpp"

namespace tutti::asking {
namespace {

// Tokens that every vocabulary has.
constexpr std::int64_t token_low = 10;
constexpr std::int64_t token_high = 249;
constexpr Duration progress_every = 100ms;

// A prompt that nobody else has, of exactly so many tokens; and an answer of exactly so many, where the
// server knows ignore_eos.
std::string body_of(const Plan& plan, const Arrival& arrival, std::size_t nth) {
  Prng random(mixed(plan.seed) ^ nth);
  std::string tokens;
  for (std::int64_t at = 0; at < arrival.prompt_tokens; ++at)
    tokens += (at == 0 ? "" : ",") + std::to_string(random.between(token_low, token_high));
  return "{\"model\":" + json::write(plan.model) + ",\"prompt\":[" + tokens +
         "],\"max_tokens\":" + std::to_string(arrival.output_tokens) +
         ",\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}"
         "}";
}

std::string problem_of(const Error& error) {
  const auto root = json::parse(error.message());
  const json::Value* const told = root ? root->find("error") : nullptr;
  const json::Value* const message = told == nullptr ? nullptr : told->find("message");
  std::string text = message != nullptr && message->text() != nullptr ? *message->text() : error.message();
  if (!error.context().empty()) text = error.context() + ": " + text;
  return text.substr(0, 200);
}

// What stands behind a key, wherever it is and whether or not there is space before it; nothing if nowhere.
std::string_view behind_key(std::string_view data, std::string_view key) {
  const auto at = data.find(key);
  if (at == std::string_view::npos) return {};
  data.remove_prefix(at + key.size());
  data.remove_prefix(std::min(data.find_first_not_of(' '), data.size()));
  return data;
}

std::int64_t count_in(const json::Value& usage, const char* key) {
  const json::Value* const value = usage.find(key);
  return value == nullptr ? 0 : value->whole().value_or(0);
}

// What one request hears. Most events are only looked at: reading all of them would measure this program.
struct Hearing {
  Sample& sample;
  SteadyClock::time_point asked;
  SteadyClock::time_point heard_at = SteadyClock::now();
  bool is_whole = false;  // the server has said so
  bool has_text = false;
  Duration last_piece{};

  bool hear(std::string_view data) {
    heard_at = SteadyClock::now();
    const Duration now = heard_at - asked;
    if (data == "[DONE]") {
      is_whole = true;
      sample.whole = now;
      return false;
    }
    if (const auto begin = data.find_first_not_of(" \t\r\n");
        begin != std::string_view::npos && data[begin] != '{')
      return refuse();
    // Where nothing comes behind it, it has ended with this.
    if (const std::string_view why = behind_key(data, "\"finish_reason\":");
        why.starts_with('"') && !why.starts_with("\"\"")) {
      is_whole = true;
      sample.whole = now;
    }
    if (const std::string_view text = behind_key(data, "\"text\":"); text.starts_with('"')) {
      has_text = has_text || !text.starts_with("\"\"");
      if (sample.first_token == Duration()) {
        sample.first_token = now;
      } else {
        sample.pause = std::max(sample.pause, now - last_piece);
      }
      last_piece = now;
    }
    const bool has_usage = behind_key(data, "\"usage\":").starts_with('{');
    if (!has_usage && behind_key(data, "\"error\":").empty()) return true;
    const auto root = json::parse(data);
    if (!root) return refuse();
    if (const json::Value* const error = root->find("error"); error != nullptr && !error->is_null()) {
      sample.problem = problem_of(failed(std::string(data)));
      return false;
    }
    if (const json::Value* const usage = root->find("usage")) {
      sample.output_tokens = count_in(*usage, "completion_tokens");
      sample.prompt_tokens = count_in(*usage, "prompt_tokens");
    }
    return true;
  }

  bool refuse() const {
    sample.problem = "it sent what is no part of an answer";
    return false;
  }

  // Why no more can come of it, "" if the server has just ended.
  std::string lack(const std::string& why) const {
    if (!is_whole && sample.first_token != Duration())
      return "the answer was cut off" + (why.empty() ? "" : ": " + why);
    if (!is_whole) return why.empty() ? "there was no answer" : why;
    return has_text || sample.output_tokens > 0 ? "" : "the answer has no tokens";
  }
};

// Nothing if it was stopped before its end.
std::optional<Sample> ask(const Plan& plan, std::size_t nth, SteadyClock::time_point asked,
                          net::Client& client, const std::atomic<bool>& stops) {
  Sample sample;
  Hearing hearing{sample, asked};
  bool is_late = false;
  const auto done = client.events(
      "POST", "/v1/completions", body_of(plan, plan.arrivals[nth], nth),
      [&](std::string_view, std::string_view data) { return hearing.hear(data); },
      [&] {
        is_late = plan.patience > Duration() && SteadyClock::now() - hearing.heard_at > plan.patience;
        return !is_late && !stops;
      });
  if (stops && !hearing.is_whole) return std::nullopt;
  if (sample.problem.empty())
    sample.problem = hearing.lack(is_late ? "nothing has come for " + format_duration(plan.patience)
                                  : done  ? ""
                                          : problem_of(done.error()));
  // Tokens that are counted and stand for no text have come by the end.
  if (sample.first_token == Duration()) sample.first_token = sample.whole;
  return sample;
}

}  // namespace

Result<Asked> ask_all(const Plan& plan, const std::function<bool(std::size_t)>& progress) {
  SteadyClock::time_point begin;
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> done = 0;
  std::atomic<bool> stops = false;
  std::promise<void> all_there;
  const auto go_on = all_there.get_future().share();
  std::mutex mutex;
  Asked asked;
  const auto work = [&, go_on] {
    go_on.wait();
    if (stops) return;
    net::Client client(plan.target, plan.key);
    for (std::size_t nth = 0; !stops && (nth = next++) < plan.arrivals.size();) {
      auto at = SteadyClock::now();
      if (plan.is_timed) {
        at = begin + plan.arrivals[nth].at;
        while (!stops && SteadyClock::now() < at)
          std::this_thread::sleep_until(std::min(at, SteadyClock::now() + progress_every));
      }
      if (stops) break;
      auto sample = ask(plan, nth, at, client, stops);
      if (!sample) break;
      const std::scoped_lock lock(mutex);
      asked.samples.push_back(std::move(*sample));
      ++done;
    }
  };
  const std::size_t count = std::min(plan.concurrency, plan.arrivals.size());
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::string refused;
  try {
    while (threads.size() < count) threads.emplace_back(work);
  } catch (const std::system_error& error) {
    refused = error.code().message();
    stops = true;
  }
  begin = SteadyClock::now();
  all_there.set_value();
  while (done < plan.arrivals.size() && !stops) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!progress(done)) stops = true;
  }
  for (std::thread& thread : threads) thread.join();
  if (!refused.empty())
    return failed("this machine lets it have " + std::to_string(threads.size()) + " of " +
                  std::to_string(count) + " threads: " + refused)
        .remedy("ask with a smaller --concurrency, or raise the limit of processes (`ulimit -u`)");
  asked.took = SteadyClock::now() - begin;
  return asked;
}

Result<ServedModel> find_model(const net::Target& target, const std::string& key, const std::string& name) {
  net::Client client(target, key);
  const auto response =
      client.request("GET", "/v1/models", "", net::answer_time_max, net::small_answer_bytes_max);
  if (!response) return response.error();
  if (response->status != 200 && name.empty())
    return failed(problem_of(failed(response->body))).within("HTTP " + std::to_string(response->status));
  const auto root = json::parse(response->body);
  const json::Value* const data = root ? root->find("data") : nullptr;
  const json::Array none;
  for (const json::Value& each : data != nullptr && data->list() != nullptr ? *data->list() : none) {
    const json::Value* const id = each.find("id");
    if (id == nullptr || id->text() == nullptr || (!name.empty() && *id->text() != name)) continue;
    const json::Value* const context = each.find("max_model_len");
    return ServedModel{*id->text(), context == nullptr ? 0 : context->whole().value_or(0)};
  }
  if (name.empty()) return failed("it names no model").within(target.text());
  return ServedModel{name, 0};
}

}  // namespace tutti::asking
