#include <array>
#include <map>
#include <regex>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

struct Banned {
  const char* pattern;  // of a demangled symbol, matched whole
  const char* what;
};

constexpr std::array banned{
    Banned{"clock_gettime|gettimeofday|time|clock|timespec_get|std::chrono::.*_clock::now\\(\\)",
           "reads a clock"},
    Banned{"localtime(_r)?|mktime|tzset", "depends on the time zone"},
    Banned{"std::random_device::.*|rand|rand_r|random|drand48|getrandom|getentropy",
           "draws randomness that no seed controls"},
    Banned{"getenv|secure_getenv|setenv|putenv|environ", "reads the environment"},
    Banned{"open|open64|openat|openat64|fopen|fopen64|freopen|read|write|mmap|mmap64|std::basic_[io]?f(ile|"
           "stream).*|std::filesystem::.*",
           "touches files"},
    Banned{"socket|connect|bind|listen|accept4?|send(to|msg)?|recv(from|msg)?|getaddrinfo", "opens sockets"},
    Banned{"pthread_create|std::thread::.*|nanosleep|clock_nanosleep|usleep|sleep|poll|select|epoll_.*",
           "starts threads or waits"},
    Banned{"fork|vfork|execv[ep]*|posix_spawnp?|system|popen|kill|getpid", "deals with processes"},
};

const char* why_banned(const std::string& symbol) {
  static const auto patterns = [] {
    std::array<std::regex, banned.size()> compiled;
    for (std::size_t at = 0; at < banned.size(); ++at) compiled[at] = std::regex(banned[at].pattern);
    return compiled;
  }();
  for (std::size_t at = 0; at < banned.size(); ++at) {
    if (std::regex_match(symbol, patterns[at])) return banned[at].what;
  }
  return nullptr;
}

struct Reference {
  std::string object;
  std::string symbol;
  std::string place;  // file:line of one use, when the debug info tells
};

// nm prints "object.o:" and below it "   U symbol\tfile:line".
std::vector<Reference> parse_nm(const std::string& text) {
  std::vector<Reference> references;
  std::string object;
  for (const std::string_view line : split(text, '\n')) {
    if (line.ends_with(":")) object = line.substr(0, line.size() - 1);
    const auto kind = line.find(" U ");
    if (kind == std::string_view::npos) continue;
    const auto tab = line.find('\t');
    std::string symbol(line.substr(kind + 3, tab == std::string_view::npos ? tab : tab - kind - 3));
    symbol.resize(std::min(symbol.find('@'), symbol.size()));  // getenv@GLIBC_2.2.5
    references.push_back(
        {object, symbol, tab == std::string_view::npos ? "" : std::string(line.substr(tab + 1))});
  }
  return references;
}

}  // namespace

bool is_pure(const Module& module) { return module.layer == "base" || module.layer == "pure"; }

Findings check_unordered(const Tree& tree, const std::vector<Module>& modules) {
  Findings findings;
  for (const auto& [path, lines] : tree.files) {
    const Module* module = owner(modules, path);
    if (module == nullptr || !is_pure(*module) || !has_ending(path, {".hpp", ".cpp"}) ||
        path.ends_with("_test.cpp"))
      continue;
    for (std::size_t at = 0; at < lines.size(); ++at) {
      if (lines[at].find("unordered_") == std::string::npos) continue;
      findings.push_back(
          {path, static_cast<int>(at) + 1, "unordered",
           "an unordered container in a pure module: its order can reach the output; use an ordered one"});
    }
  }
  return findings;
}

Result<Findings> check_symbols(const Module& module, const std::string& archive) {
  // -l asks the debug info for the place of each use; it is slow, so it is done only when there is something
  // to say.
  auto quick = output_of("nm -uC '" + archive + "' 2>/dev/null");
  if (!quick) return std::move(quick).error();
  bool clean = true;
  for (const Reference& reference : parse_nm(*quick))
    clean = clean && why_banned(reference.symbol) == nullptr;
  Findings findings;
  if (clean) return findings;
  auto slow = output_of("nm -uCl '" + archive + "' 2>/dev/null");
  if (!slow) return std::move(slow).error();
  for (const Reference& reference : parse_nm(*slow)) {
    const char* why = why_banned(reference.symbol);
    if (why == nullptr) continue;
    const auto colon = reference.place.rfind(':');
    const bool placed = colon != std::string::npos && reference.place.find('/') != std::string::npos;
    findings.push_back({placed ? reference.place.substr(0, colon) : module.folder + "/" + reference.object,
                        placed ? std::atoi(reference.place.c_str() + colon + 1) : 1, "symbols",
                        "the pure module " + module.name + " " + why + ": " + reference.symbol});
  }
  return findings;
}

}  // namespace tutti::tidy
