// The rules of a .tuttiignore file: which paths of a folder stay at home. They read like those of .gitignore:
//   # a comment        blank lines are skipped
//   *.log              a name at any depth; * and ? do not cross a '/', [a-z] and [!a-z] are sets of letters
//   /data  docs/*.pdf  a '/' at the front or in the middle ties the rule to the top of the folder
//   build/             folders only
//   a/**/b  **/c  d/** `**` is any number of folders; at the end, everything inside
//   !keep.log          takes an earlier rule back, unless a folder above is left out as a whole
// A backslash makes the next letter plain. The last rule that matches decides. Values: safe on any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::sync {

class IgnoreRules {
 public:
  explicit IgnoreRules(std::string_view text);

  // Whether this path itself is left out. The caller does not enter a folder that is.
  bool ignores(std::string_view path, bool is_folder) const;

 private:
  struct Rule {
    std::vector<std::string> parts;
    bool folders_only = false;
    bool takes_back = false;
  };

  void add(std::string_view line);

  std::vector<Rule> rules_;
};

}  // namespace tutti::sync
