#include "common/options.hpp"

#include <algorithm>
#include <cstdio>

namespace tutti::bench {
namespace {

Result<> check_name(const std::string& only, const std::vector<std::string>& parts) {
  if (only.empty() || std::find(parts.begin(), parts.end(), only) != parts.end()) return {};
  std::string names;
  for (const auto& part : parts) names += (names.empty() ? "" : ", ") + part;
  return invalid("there is no part '" + only + "'").within("--only").remedy("the parts are " + names);
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& words, const std::vector<std::string>& parts) {
  Options options;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const bool has_value = at + 1 < words.size();
    if (words[at] == "--quick") {
      options.quick = true;
    } else if (words[at] == "--only" && has_value) {
      options.only = words[++at];
    } else if (words[at] == "--traces" && has_value) {
      options.traces = words[++at];
    } else if (words[at] == "--llama" && has_value) {
      options.llama = words[++at];
    } else if (words[at] == "--before" && has_value) {
      options.before = words[++at];
    } else if (words[at] == "--json" && has_value) {
      options.json_file = words[++at];
    } else {
      return invalid("unknown or without a value")
          .within(words[at])
          .remedy(
              "flags: [--quick] [--only PART] [--json FILE], and [--traces DIR] where traces are replayed, "
              "[--llama DIR] where llama.cpp's tools are the peer, [--before TUTTI] where an earlier one is; "
              "--quick: few repeats, to see that it works");
    }
  }
  if (auto known = check_name(options.only, parts); !known) return std::move(known).error();
  return options;
}

int exit_code(const std::string& program, const Result<>& done) {
  if (done) return 0;
  std::fprintf(stderr, "%s: %s\n", program.c_str(), done.error().text().c_str());
  if (!done.error().remedy().empty()) std::fprintf(stderr, "  %s\n", done.error().remedy().c_str());
  return done.error().code() == ErrorCode::invalid ? 2 : 1;
}

}  // namespace tutti::bench
