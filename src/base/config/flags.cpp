#include "base/config/flags.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/text.hpp"

namespace tutti::config {
namespace {

Error not_a(std::string_view text, std::string_view what) {
  return invalid("'" + std::string(text.substr(0, 64)) + "' is not " + std::string(what));
}

Result<bool> parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return not_a(text, "true or false");
}

Result<std::int64_t> parse_integer(std::string_view text, Range range) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc::result_out_of_range && parsed.ptr == end)
    return not_a(text, "a number of at most 64 bits");
  if (parsed.ec != std::errc() || parsed.ptr != end) return not_a(text, "a whole number");
  if (number < range.min)
    return invalid(std::to_string(number) + " is less than " + std::to_string(range.min));
  if (number > range.max)
    return invalid(std::to_string(number) + " is more than " + std::to_string(range.max));
  return number;
}

Result<double> parse_number(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool finite = number - number == 0;
  if (parsed.ec != std::errc() || parsed.ptr != end || !finite) return not_a(text, "a number");
  return number;
}

// A setter that parses and stores.
template <class T, class Parse>
Flags::Setter store(T& target, Parse parse) {
  return [&target, parse](std::string_view text) -> Result<> {
    auto value = parse(text);
    if (!value) return std::move(value).error();
    target = std::move(*value);
    return {};
  };
}

// Breaks `text` at blanks so that no line passes `width`; lines after the first begin with `indent` blanks.
// Its own line breaks stay.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  for (const std::string_view word : split(text, ' ')) {
    const auto line_end = word.rfind('\n');
    if (!out.empty() && column + 1 + std::min(word.size(), word.find('\n')) > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column = line_end == std::string_view::npos ? column + word.size() : word.size() - line_end - 1;
  }
  return out;
}

constexpr std::size_t help_width = 100;
constexpr std::size_t help_column = 30;

std::string help_row(const std::string& left, std::string_view help) {
  std::string row = "  " + left;
  if (row.size() + 2 > help_column) {
    row += "\n" + std::string(help_column, ' ');
  } else {
    row.append(help_column - row.size(), ' ');
  }
  return row + wrap(help, help_column, help_width) + "\n";
}

}  // namespace

Flags::Flags(std::string command, std::string arguments, std::string summary)
    : command_(std::move(command)), arguments_(std::move(arguments)), summary_(std::move(summary)) {}

void Flags::add_option(std::string name, std::string shape, std::string help, Option::Kind kind, Setter set) {
  TUTTI_CHECK(find(name) == nullptr, "two options of one name");
  options_.push_back({std::move(name), std::move(shape), std::move(help), kind, std::move(set)});
}

void Flags::add(std::string name, bool& target, std::string help) {
  add_option(std::move(name), "", std::move(help), Option::Kind::toggle, store(target, parse_bool));
}
void Flags::add(std::string name, std::string& target, std::string help) {
  add_option(std::move(name), "TEXT", std::move(help), Option::Kind::single,
             store(target, [](std::string_view text) -> Result<std::string> { return std::string(text); }));
}
void Flags::add(std::string name, std::vector<std::string>& target, std::string help) {
  add_option(std::move(name), "TEXT", std::move(help), Option::Kind::list,
             [&target](std::string_view text) -> Result<> {
               target.emplace_back(text);
               return {};
             });
}
void Flags::add(std::string name, std::int64_t& target, std::string help, Range range) {
  add_option(std::move(name), "N", std::move(help), Option::Kind::single,
             store(target, [range](std::string_view text) { return parse_integer(text, range); }));
}
void Flags::add(std::string name, double& target, std::string help) {
  add_option(std::move(name), "NUMBER", std::move(help), Option::Kind::single, store(target, parse_number));
}
void Flags::add(std::string name, Duration& target, std::string help) {
  add_option(std::move(name), "TIME", std::move(help), Option::Kind::single, store(target, parse_duration));
}
void Flags::add(std::string name, Bytes& target, std::string help) {
  add_option(std::move(name), "SIZE", std::move(help), Option::Kind::single, store(target, parse_bytes));
}
void Flags::add(std::string name, std::string shape, Setter setter, std::string help) {
  add_option(std::move(name), std::move(shape), std::move(help), Option::Kind::single, std::move(setter));
}

void Flags::add_word(std::string name, std::string& target, std::string help, bool required) {
  words_.push_back({std::move(name), std::move(help), &target, required});
}
void Flags::add_words(std::string name, std::vector<std::string>& target, std::string help) {
  many_ = {std::move(name), std::move(help), nullptr, true};
  many_target_ = &target;
}
void Flags::add_rest(std::string name, std::vector<std::string>& target, std::string help, bool required) {
  rest_name_ = std::move(name);
  rest_help_ = std::move(help);
  rest_ = &target;
  rest_required_ = required;
}

void Flags::add_hint(std::string flag, std::string advice) {
  TUTTI_CHECK(flag.starts_with('-'), "a flag begins with a dash");
  hints_[std::move(flag)] = std::move(advice);
}

// "-N2" is "-N" with its value.
std::string Flags::advice_for(const std::string& flag) const {
  const bool short_flag = flag.size() > 1 && flag[1] != '-';
  const auto hint = hints_.find(short_flag ? flag.substr(0, 2) : flag);
  return hint == hints_.end() ? did_you_mean(flag, names("--")) : hint->second;
}

const Flags::Option* Flags::find(std::string_view name) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

std::vector<std::string> Flags::names(std::string_view prefix) const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(std::string(prefix) + option.name);
  return names;
}

Error Flags::usage(std::string why, std::string_view advice) const {
  return invalid(std::move(why))
      .within(command_)
      .remedy(advice)
      .remedy("`tutti help " + command_ + "` explains the command");
}

Result<> Flags::take(const Option& option, const std::vector<std::string>& values) const {
  for (const auto& value : values) {
    if (auto set = option.set(value); !set)
      return std::move(set).error().within("--" + option.name).within(command_);
  }
  return {};
}

// CLI11 knows the grammar of a command line; what the values mean is decided here.
Result<> Flags::parse(std::span<const std::string> arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  if (rest_ != nullptr) app.prefix_command();
  bool help = false;
  app.add_flag("-h,--help", help);
  for (const Option& option : options_) {
    if (option.kind == Option::Kind::toggle) {
      app.add_flag("--" + option.name)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      auto* added = app.add_option("--" + option.name)->expected(1)->type_size(1);
      if (option.kind == Option::Kind::list) {
        added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->expected(1, 1 << 20)
            ->allow_extra_args(false);
      } else {
        added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ArgumentMismatch& mismatch) {
    return usage(std::string(mismatch.what()).substr(0, 200));
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  help_wanted_ = help;
  if (help_wanted_) return {};
  for (const Option& option : options_) {
    const auto* parsed = app.get_option("--" + option.name);
    if (parsed->count() == 0) continue;
    if (auto taken = take(option, parsed->results()); !taken) return taken;
  }
  return take_words(app.remaining());
}

Result<> Flags::take_words(std::vector<std::string> words) {
  std::size_t next = 0;
  std::size_t at = 0;
  bool dashes_are_words = false;
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (!dashes_are_words && word == "--") {
      dashes_are_words = true;
      continue;
    }
    const bool dash = !dashes_are_words && word.size() > 1 && word.front() == '-';
    if (dash) {
      const std::string name = word.substr(0, word.find('='));
      return usage("unknown flag '" + name.substr(0, 64) + "'", advice_for(name));
    }
    if (next < words_.size()) {
      *words_[next++].target = word;
    } else if (many_target_ != nullptr) {
      many_target_->push_back(word);
    } else {
      break;
    }
  }
  if (next < words_.size() && words_[next].required) return usage("missing " + words_[next].name);
  if (many_target_ != nullptr && many_target_->empty()) return usage("missing " + many_.name);
  if (at < words.size() && rest_ == nullptr)
    return usage("unexpected word '" + words[at].substr(0, 64) + "'");
  if (rest_ != nullptr) rest_->assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (rest_ != nullptr && rest_required_ && rest_->empty()) return usage("missing " + rest_name_);
  return {};
}

Result<> Flags::read(const Document& document) {
  for (std::size_t at = 0; at < document.root.keys.size(); ++at) {
    auto read =
        read_key(document, document.root.keys[at], document.root.key_lines[at], document.root.items[at]);
    if (!read) return read;
  }
  return {};
}

// A list flag takes a sequence or, as K=V, a mapping; every other flag takes a scalar.
Result<> Flags::read_key(const Document& document, const std::string& key, int key_line,
                         const Value& value) const {
  const Option* option = find(key);
  if (option == nullptr)
    return document.error(key_line, key, "unknown key").remedy(did_you_mean(key, names("")));
  const auto set = [&](const std::string& text, int line) -> Result<> {
    auto result = option->set(text);
    if (result) return result;
    const Error& error = result.error();
    return document.error(line, key, error.message()).remedy(error.remedy());
  };
  if (value.kind == Value::Kind::scalar) return set(value.scalar, value.line);
  if (option->kind != Option::Kind::list || value.kind == Value::Kind::null) {
    return document.error(key_line, key, "expected one value");
  }
  for (std::size_t at = 0; at < value.items.size(); ++at) {
    const Value& item = value.items[at];
    if (item.kind != Value::Kind::scalar)
      return document.error(item.line, key, "expected a list of plain values");
    const std::string prefix = value.kind == Value::Kind::mapping ? value.keys[at] + "=" : "";
    if (auto result = set(prefix + item.scalar, item.line); !result) return result;
  }
  return {};
}

std::string Flags::help() const {
  std::string text = "usage: tutti " + command_ + (arguments_.empty() ? "" : " " + arguments_) + "\n\n";
  text += wrap(summary_, 0, help_width) + "\n";
  if (!words_.empty() || many_target_ != nullptr || rest_ != nullptr) text += "\n";
  for (const Word& word : words_) text += help_row(word.name, word.help);
  if (many_target_ != nullptr) text += help_row(many_.name, many_.help);
  if (rest_ != nullptr) text += help_row(rest_name_, rest_help_);
  text += "\nflags:\n";
  for (const Option& option : options_) {
    text += help_row("--" + option.name + (option.shape.empty() ? "" : " " + option.shape), option.help);
  }
  return text + help_row("--help", "this text");
}

}  // namespace tutti::config
