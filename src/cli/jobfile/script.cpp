#include "cli/jobfile/script.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.hpp"
#include "cli/jobfile/slurm.hpp"

namespace tutti::jobfile {
namespace {

struct FlagLine {
  int number;
  std::vector<std::string> words;
};

bool is_blank(char letter) { return letter == ' ' || letter == '\t'; }

bool begins_with_word(std::string_view line, std::string_view word) {
  return line.starts_with(word) && (line.size() == word.size() || is_blank(line[word.size()]));
}

class ScriptParser {
 public:
  ScriptParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<JobFile> parse();

 private:
  Error error(int line, Error error) const;
  Result<> check_text() const;
  Result<std::vector<std::string>> interpreter(std::string_view first_line) const;
  Result<> sort_line(std::string_view line, int number);
  void warn_below_the_top(std::string_view line, int number);
  Result<> read_slurm_lines();
  Result<> read_tutti_line(const FlagLine& line);
  Result<> check_lists(std::size_t env_before, std::size_t after_before,
                       std::size_t after_success_before) const;

  std::string_view text_;
  std::string name_;
  bool at_top_ = true;
  std::vector<FlagLine> tutti_lines_;
  std::vector<FlagLine> slurm_lines_;
  JobFile file_;
};

Error ScriptParser::error(int line, Error error) const {
  return std::move(error).within(name_ + ":" + std::to_string(line));
}

Result<> ScriptParser::check_text() const {
  if (text_.find('\0') != std::string_view::npos) return invalid("this is not a text file").within(name_);
  if (trim(text_).empty()) return invalid("the script is empty").within(name_);
  if (text_.size() > command_word_bytes_max)
    return invalid("the script is larger than 128 KiB, the most that Linux passes to a shell")
        .within(name_)
        .remedy("ship it with --sync and let a short script start it");
  const auto line_end = text_.find('\n');
  if (line_end != std::string_view::npos && line_end > 0 && text_[line_end - 1] == '\r')
    return error(1, invalid("the lines end as on Windows, which a shell does not read"))
        .remedy("convert the file: sed -i 's/\\r$//' " + name_);
  return {};
}

// The shell and its options, from the first line.
Result<std::vector<std::string>> ScriptParser::interpreter(std::string_view first_line) const {
  constexpr std::array<std::string_view, 5> shells{"bash", "sh", "dash", "ksh", "zsh"};
  if (!first_line.starts_with("#!")) return std::vector<std::string>{"bash"};
  std::vector<std::string> words;
  for (const std::string_view word : split(first_line.substr(2), ' ')) {
    if (!trim(word).empty()) words.emplace_back(trim(word));
  }
  const auto base_name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  if (!words.empty() && base_name(words.front()) == "env") {
    words.erase(words.begin());
    if (!words.empty() && words.front() == "-S") words.erase(words.begin());
  }
  const std::string program = words.empty() ? "" : base_name(words.front());
  if (std::find(shells.begin(), shells.end(), program) == shells.end()) {
    return error(1, invalid("'" + program.substr(0, 64) +
                            "' is not a shell, and only a shell's script is a job"))
        .remedy("run it as a command: tutti run --sync . -- " + (program.empty() ? "PROGRAM" : program) +
                " " + name_);
  }
  words.front() = program;
  return words;
}

Result<> ScriptParser::sort_line(std::string_view line, int number) {
  const bool slurm = begins_with_word(line, "#SBATCH");
  const bool tutti = begins_with_word(line, "#TUTTI");
  if (!slurm && !tutti) {
    const std::string_view bare = trim(line);
    at_top_ = bare.empty() || bare.front() == '#';
    if (!at_top_) warn_below_the_top(line, number);
    return {};
  }
  if (tutti_lines_.size() + slurm_lines_.size() == flag_lines_max)
    return error(number, invalid("more than " + std::to_string(flag_lines_max) + " lines of flags"));
  auto words = split_words(line.substr(slurm ? 7 : 6));
  if (!words) return error(number, std::move(words).error());
  (slurm ? slurm_lines_ : tutti_lines_).push_back({number, std::move(*words)});
  return {};
}

void ScriptParser::warn_below_the_top(std::string_view line, int number) {
  const std::string place = name_ + ":" + std::to_string(number) + ": ";
  for (const std::string_view kind : {"#SBATCH", "#TUTTI"}) {
    if (begins_with_word(line, kind))
      file_.warnings.push_back(place + std::string(kind) +
                               " : not read, because it stands below the first command");
  }
  if (!slurm_lines_.empty() && begins_with_word(trim(line), "srun"))
    file_.warnings.push_back(place +
                             "srun : every rank runs this script already; write the command without srun");
}

Result<> ScriptParser::read_slurm_lines() {
  SlurmReader reader(name_, file_.draft, file_.warnings);
  for (const FlagLine& line : slurm_lines_) {
    if (auto read = reader.read(line.number, line.words); !read) return read;
  }
  return slurm_lines_.empty() ? Result<>() : reader.finish();
}

Result<> ScriptParser::read_tutti_line(const FlagLine& line) {
  Draft& draft = file_.draft;
  const auto env_before = draft.env.size();
  const auto after_before = draft.after.size();
  const auto after_success_before = draft.after_success.size();
  config::Flags flags(name_ + ":" + std::to_string(line.number), "", "");
  draft.declare(flags);
  auto parsed = flags.parse(line.words);
  if (parsed && flags.help_wanted()) return error(line.number, invalid("unknown flag '--help'"));
  if (parsed) {
    auto checked = check_lists(env_before, after_before, after_success_before);
    return checked ? Result<>() : error(line.number, std::move(checked).error());
  }
  // The flags point to the help of a command, and a place in a script is none.
  const Error& found = parsed.error();
  const bool points_to_help = found.remedy().starts_with("`tutti help");
  return invalid(found.message())
      .within(found.context())
      .remedy(points_to_help ? "`tutti help run` explains the flags" : found.remedy());
}

Result<> ScriptParser::check_lists(std::size_t env_before, std::size_t after_before,
                                   std::size_t after_success_before) const {
  const auto check = [](const std::vector<std::string>& items, std::size_t from, auto checker,
                        const char* flag) {
    for (std::size_t at = from; at < items.size(); ++at) {
      auto checked = checker(items[at]);
      if (!checked) return Result<>(std::move(checked).error().within(flag));
    }
    return Result<>();
  };
  auto checked = check(file_.draft.env, env_before, check_env, "--env");
  if (checked) checked = check(file_.draft.after, after_before, parse_job, "--after");
  if (checked) checked = check(file_.draft.after_success, after_success_before, parse_job, "--after-success");
  return checked;
}

Result<JobFile> ScriptParser::parse() {
  if (auto checked = check_text(); !checked) return std::move(checked).error();
  const auto lines = split(text_, '\n');
  auto command = interpreter(lines.front());
  if (!command) return std::move(command).error();
  int number = 0;
  for (const std::string_view line : lines) {
    ++number;
    if (!at_top_) {
      warn_below_the_top(line, number);
    } else if (auto sorted = sort_line(line, number); !sorted) {
      return std::move(sorted).error();
    }
  }
  file_.draft.name = as_name(name_);
  file_.draft.command = std::move(*command);
  file_.draft.command.insert(file_.draft.command.end(), {"-c", std::string(text_), name_});
  file_.draft.slurm_variables = !slurm_lines_.empty();
  if (auto read = read_slurm_lines(); !read) return std::move(read).error();
  for (const FlagLine& line : tutti_lines_) {
    if (auto read = read_tutti_line(line); !read) return std::move(read).error();
  }
  return std::move(file_);
}

}  // namespace

Result<JobFile> parse_script(std::string_view text, std::string_view name) {
  return ScriptParser(text, name).parse();
}

Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (quote == '\0' && is_blank(letter)) {
      in_word = false;
      continue;
    }
    if (!in_word && letter == '#') break;
    if (!in_word) words.emplace_back();
    in_word = true;
    if (letter == quote) {
      quote = '\0';
    } else if (quote == '\0' && (letter == '"' || letter == '\'')) {
      quote = letter;
    } else if (letter == '\\' && quote != '\'' && at + 1 < line.size()) {
      words.back() += line[++at];
    } else {
      words.back() += letter;
    }
  }
  if (quote != '\0') return invalid("a quote is not closed");
  return words;
}

}  // namespace tutti::jobfile
