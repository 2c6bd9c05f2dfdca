#include "base/log/log.hpp"

#include <array>
#include <memory>

#define SPDLOG_FMT_EXTERNAL
#define SPDLOG_HEADER_ONLY
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/visible.hpp"

namespace tutti::log {
namespace {

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

std::shared_ptr<spdlog::logger> make_logger(const Options& options) {
  auto logger =
      std::make_shared<spdlog::logger>(options.part, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(make_formatter(options.json));
  logger->set_level(to_spdlog(options.level));
  return logger;
}

// Not destroyed at exit: other static objects may still log while they end.
std::shared_ptr<spdlog::logger>& logger() {
  static auto& instance = *new std::shared_ptr<spdlog::logger>(make_logger({}));
  return instance;
}

}  // namespace

Result<Level> parse_level(std::string_view text) {
  for (std::size_t at = 0; at < level_names.size(); ++at) {
    if (level_names[at] == text) return static_cast<Level>(at);
  }
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not a log level")
      .remedy("the levels are debug, info, warning, error and off");
}

void setup(const Options& options) { logger() = make_logger(options); }

bool enabled(Level level) { return level != Level::off && logger()->should_log(to_spdlog(level)); }

void write(Level level, std::string_view message) {
  logger()->log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace tutti::log
