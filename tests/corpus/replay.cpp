// Runs a fuzz target over the files of a folder, for compilers without libFuzzer: each as it is, and changed
// in ways that are the same in every run, so that a target is tried with more than what was kept.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

// Of all files together: a test takes a moment, and libFuzzer the time that it is given.
constexpr std::size_t changed_max = 2000;
constexpr std::size_t change_bytes_max = 16;
constexpr std::size_t changes_max = 4;
// What parsers stumble over: ends, signs, lengths, and the marks of the formats.
constexpr char marks[] = "\0\xff\x7f\x80\n\r \"\\{}[]<>:;,.-+=_/*%$&09aAzZ";

class Changes {
 public:
  explicit Changes(const std::string& bytes) {
    std::seed_seq seed(bytes.begin(), bytes.end());
    random_.seed(seed);
  }

  std::string change(std::string bytes) {
    for (std::size_t left = 1 + below(changes_max); left > 0; --left) change_once(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  char mark() { return marks[below(sizeof marks - 1)]; }

  void change_once(std::string& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = std::min(1 + below(change_bytes_max), bytes.size() - at);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = mark();
        break;
      case 2:
        bytes.insert(at, 1 + below(change_bytes_max), mark());
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(below(bytes.size() + 1), std::string(bytes, at, length));
        break;
      default:
        bytes.resize(at);
    }
  }

  std::mt19937_64 random_;
};

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int at = 1; at < argc; ++at)
    for (const auto& entry : std::filesystem::directory_iterator(argv[at])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    // The last that is named is the one that a target fell over, as it is or changed.
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);
    const std::string bytes = read(file);
    run(bytes);
    Changes changes(bytes);
    for (std::size_t left = changed_max / files.size(); left > 0; --left) run(changes.change(bytes));
  }
  std::printf("%zu files, each changed %zu times\n", files.size(),
              files.empty() ? 0 : changed_max / files.size());
  return files.empty() ? 1 : 0;
}
