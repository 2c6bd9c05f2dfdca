#include <regex>
#include <set>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

// Programs of the reader's own machine that the documents may use.
const std::set<std::string>& known_programs() {
  static const std::set<std::string> programs{"git",     "cd",  "cmake", "ctest", "ninja",  "export",
                                              "echo",    "cat", "ls",    "curl",  "sudo",   "mkdir",
                                              "python3", "jq",  "ssh",   "scp",   "openssl"};
  return programs;
}

struct Shown {
  int line = 0;
  std::string text;
  bool inline_code = false;
};

// Lines of shell blocks (all of ```sh, those behind "$ " in ```console) and `inline code`.
std::vector<Shown> shown_commands(const Lines& lines) {
  static const std::regex inline_code("`([^`]+)`");
  std::vector<Shown> shown;
  std::string block;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    const std::string& line = lines[at];
    const int number = static_cast<int>(at) + 1;
    if (line.starts_with("```")) {
      block = block.empty() ? "```" + line.substr(3) : "";
    } else if (block == "```sh" && !trim(line).empty() && !trim(line).starts_with("#")) {
      shown.push_back({number, std::string(trim(line)), false});
    } else if (block == "```console" && line.starts_with("$ ")) {
      shown.push_back({number, line.substr(2), false});
    } else if (block.empty()) {
      for (std::sregex_iterator match(line.begin(), line.end(), inline_code), end; match != end; ++match) {
        shown.push_back({number, (*match)[1], true});
      }
    }
  }
  return shown;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' ')) {
    if (word == "#" || word == "|" || word == ">" || word == "&&") break;
    const bool assignment = words.empty() && word.find('=') != std::string_view::npos;
    if (!word.empty() && !assignment) words.emplace_back(word);
  }
  return words;
}

// A placeholder such as COMMAND or [flags] stands for any word.
bool is_placeholder(const std::string& word) {
  return std::regex_match(word, std::regex(R"([A-Z_]+(…)?|[\[<].*|.*(\||…).*)"));
}

class Checker {
 public:
  Checker(const Tree& tree, const HelpOf& help_of) : tree_(tree), help_of_(help_of) {}

  // What is wrong with the command, "" if nothing is.
  std::string check(const Shown& shown) const {
    const auto words = words_of(shown.text);
    if (words.empty()) return "";
    const std::string& program = words.front();
    if (program == "./dev" || program == "tutti" || program == "tutti-worker")
      return check_own(program, words);
    if (shown.inline_code) return "";
    if (program.find('/') != std::string::npos && !program.starts_with("build/")) {
      const std::string path = program.starts_with("./") ? program.substr(2) : program;
      return tree_.has(path) ? "" : "there is no file " + path;
    }
    return program.starts_with("build/") || known_programs().contains(program)
               ? ""
               : "no known command '" + program + "'";
  }

 private:
  std::string check_own(const std::string& program, const std::vector<std::string>& words) const {
    if (words.size() < 2 || is_placeholder(words[1])) return "";
    const auto help = help_of_(program, words[1]);
    if (!help) return "there is no `" + program + " " + words[1] + "`";
    if (program == "./dev") return "";
    for (std::size_t at = 2; at < words.size() && words[at] != "--"; ++at) {
      const std::string flag = words[at].substr(0, words[at].find('='));
      if (flag.starts_with("--") && help->find(flag) == std::string::npos) {
        return "`" + program + " " + words[1] + "` has no flag " + flag;
      }
    }
    return "";
  }

  const Tree& tree_;
  const HelpOf& help_of_;
};

}  // namespace

Findings check_commands(const Tree& tree, const HelpOf& help_of) {
  Findings findings;
  const Checker checker(tree, help_of);
  for (const auto& [path, lines] : tree.files) {
    // The change log speaks of the past.
    if (!path.ends_with(".md") || path == "CHANGELOG.md") continue;
    for (const Shown& shown : shown_commands(lines)) {
      const std::string wrong = checker.check(shown);
      if (!wrong.empty()) findings.push_back({path, shown.line, "commands", wrong});
    }
  }
  return findings;
}

}  // namespace tutti::tidy
