// The words that a benchmark of several parts is called with, and how it ends. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace tutti::bench {

struct Options {
  std::string json_file;
  std::string only;
  std::string traces;  // a folder
  std::string llama;   // a folder
  std::string before;  // an earlier `tutti`
  bool quick = false;

  bool wants(const std::string& part) const { return only.empty() || only == part; }
};

Result<Options> parse_options(const std::vector<std::string>& words, const std::vector<std::string>& parts);

// Of a list of parts, each with a name.
template <class Parts>
std::vector<std::string> names_of(const Parts& parts) {
  std::vector<std::string> names;
  for (const auto& part : parts) names.emplace_back(part.name);
  return names;
}

// What main() returns; says what went wrong.
int exit_code(const std::string& program, const Result<>& done);

}  // namespace tutti::bench
