#include "base/log/log.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#define SPDLOG_FMT_EXTERNAL
#define SPDLOG_HEADER_ONLY
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/files/line_queue.hpp"
#include "base/last_words.hpp"
#include "base/log/last_signal.hpp"
#include "base/visible.hpp"

namespace tutti::log {
namespace {

constexpr std::size_t waiting_bytes_max = std::size_t{4} << 20;
constexpr Duration farewell_max = std::chrono::seconds(1);

constexpr std::array<std::string_view, 5> level_names{"debug", "info", "warning", "error", "off"};

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

// The message as the inside of a JSON string. Bytes that are not UTF-8 pass through unchanged.
class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    for (const char letter : message.payload) append(letter, out);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<JsonMessage>(); }

 private:
  static void append(char letter, spdlog::memory_buf_t& out) {
    if (letter == '"' || letter == '\\') {
      out.push_back('\\');
      out.push_back(letter);
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      const std::string escaped = fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
      out.append(escaped.data(), escaped.data() + escaped.size());
    } else {
      out.push_back(letter);
    }
  }
};

// The message on one line. Names and errors of others are in it: what a terminal would obey is shown.
class LineMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string line = visible_line({message.payload.data(), message.payload.size()});
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LineMessage>(); }
};

std::unique_ptr<spdlog::formatter> make_formatter(bool json) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  if (json) {
    formatter->add_flag<JsonMessage>('*');
    formatter->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","part":"%n","message":"%*"})");
  } else {
    formatter->add_flag<LineMessage>('*');
    formatter->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %*");
  }
  return formatter;
}

// Not destroyed at exit, as the logger is not; none in a program that does not serve.
std::optional<files::LineQueue>& queue() {
  static auto& instance = *new std::optional<files::LineQueue>();
  return instance;
}

class QueueSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (queue()) queue()->add(std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

bool tell_missing(const Options& options, std::uint64_t lines) {
  const std::string text = fmt::format("{} lines are missing here: stderr did not take them", lines);
  spdlog::memory_buf_t line;
  make_formatter(options.json)
      ->format(spdlog::details::log_msg(options.part, spdlog::level::warn, text), line);
  return files::write_line(STDERR_FILENO, std::string(line.data(), line.size()));
}

// Where there is no thread to be had, lines are written by whoever has them.
void start_queue(const Options& options) {
  auto started = files::LineQueue::start(
      waiting_bytes_max, [](const std::string& line) { return files::write_line(STDERR_FILENO, line); },
      [options](std::uint64_t lines) { return tell_missing(options, lines); });
  if (started) queue().emplace(std::move(*started));
}

std::shared_ptr<spdlog::logger> make_logger(const Options& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (queue()) {
    sink = std::make_shared<QueueSink>();
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }
  auto logger = std::make_shared<spdlog::logger>(options.part, std::move(sink));
  logger->set_formatter(make_formatter(options.json));
  logger->set_level(to_spdlog(options.level));
  // Of its own accord spdlog would write to stderr, and wait for it.
  if (queue()) logger->set_error_handler([](const std::string&) {});
  return logger;
}

// Not destroyed at exit: other static objects may still log while they end.
std::shared_ptr<spdlog::logger>& logger() {
  static auto& instance = *new std::shared_ptr<spdlog::logger>(make_logger({}));
  return instance;
}

void say_last_words(const char* line) {
  say(line);
  finish();
}

// As the one of the standard library, which would wait for stderr.
[[noreturn]] void terminate() {
  std::string why = "terminate called";
  try {
    if (const auto failure = std::current_exception()) std::rethrow_exception(failure);
  } catch (const std::exception& failure) {
    why += std::string(": ") + failure.what();
  } catch (...) {
    why += ": what was thrown is no exception";
  }
  say_last_words((visible_line(why) + "\n").c_str());
  std::abort();
}

}  // namespace

Result<Level> parse_level(std::string_view text) {
  for (std::size_t at = 0; at < level_names.size(); ++at) {
    if (level_names[at] == text) return static_cast<Level>(at);
  }
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not a log level")
      .remedy("the levels are debug, info, warning, error and off");
}

void setup(const Options& options) {
  queue().reset();
  if (options.serves) start_queue(options);
  logger() = make_logger(options);
  set_last_words(queue() ? say_last_words : nullptr);
  if (queue()) std::set_terminate(terminate);
  options.serves ? tell_last_signal(options.part) : forget_last_signal();
}

bool finish() { return !queue() || queue()->drain(farewell_max); }

void say(const std::string& text) {
  if (queue()) {
    queue()->add(text);
  } else {
    std::fputs(text.c_str(), stderr);
  }
}

bool enabled(Level level) { return level != Level::off && logger()->should_log(to_spdlog(level)); }

void write(Level level, std::string_view message) {
  logger()->log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace tutti::log
