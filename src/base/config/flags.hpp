// One declaration of an option, two ways to set it: `--ranks 4` on the command line, `ranks: 4` in a file.
// Both go through the same conversion, so both refuse the same values with the same words.
//
//   std::int64_t ranks = 1;
//   Flags flags("run", "[flags] -- COMMAND", "Submits a job and streams its logs.");
//   flags.add("ranks", ranks, "how many ranks the gang has", {.min = 1});
//   if (auto parsed = flags.parse(arguments); !parsed) …
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/document.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/units.hpp"

namespace tutti::config {

struct Range {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

class Flags {
 public:
  Flags(std::string command, std::string arguments, std::string summary);

  // The targets must outlive the parsing; they keep their value where nothing sets them.
  void add(std::string name, bool& target, std::string help);
  void add(std::string name, std::string& target, std::string help);
  void add(std::string name, std::vector<std::string>& target,
           std::string help);  // may be given several times
  void add(std::string name, std::int64_t& target, std::string help, Range range = {});
  void add(std::string name, double& target, std::string help);
  void add(std::string name, Duration& target, std::string help);
  void add(std::string name, Bytes& target, std::string help);
  // A value of a type of the caller's own; `shape` stands for it in the help.
  using Setter = std::function<Result<>(std::string_view)>;
  void add(std::string name, std::string shape, Setter setter, std::string help);

  // Words without a dash, in the order of declaration.
  void add_word(std::string name, std::string& target, std::string help, bool required = true);
  // One word or more after those, flags between them.
  void add_words(std::string name, std::vector<std::string>& target, std::string help);
  // All words from the first one on, or from `--` on, untouched: another program's command line.
  void add_rest(std::string name, std::vector<std::string>& target, std::string help, bool required = true);

  // What to say to somebody who writes this flag, which there is not: "-N" or "--gres".
  void add_hint(std::string flag, std::string advice);

  // `--help` wins over everything else that may be wrong with the line: ask help_wanted() first.
  Result<> parse(std::span<const std::string> arguments);
  bool help_wanted() const { return help_wanted_; }
  // Sets every key of the file; unknown keys are errors.
  Result<> read(const Document& document);

  std::string help() const;
  // Of all flags, each with this before it.
  std::vector<std::string> names(std::string_view prefix) const;

 private:
  struct Option {
    enum class Kind { toggle, single, list };
    std::string name;
    std::string shape;
    std::string help;
    Kind kind;
    Setter set;
  };
  struct Word {
    std::string name;
    std::string help;
    std::string* target;
    bool required;
  };

  void add_option(std::string name, std::string shape, std::string help, Option::Kind kind, Setter set);
  const Option* find(std::string_view name) const;
  std::string advice_for(const std::string& flag) const;
  Error usage(std::string why, std::string_view advice = {}) const;
  Result<> take(const Option& option, const std::vector<std::string>& values) const;
  Result<> take_words(std::vector<std::string> words);
  Result<> read_key(const Document& document, const std::string& key, int key_line, const Value& value) const;

  std::string command_;
  std::string arguments_;
  std::string summary_;
  std::vector<Option> options_;
  std::map<std::string, std::string> hints_;
  std::vector<Word> words_;
  Word many_{};  // the words after those, all into one list
  std::vector<std::string>* many_target_ = nullptr;
  std::string rest_name_;
  std::string rest_help_;
  std::vector<std::string>* rest_ = nullptr;
  bool rest_required_ = false;
  bool help_wanted_ = false;
};

}  // namespace tutti::config
