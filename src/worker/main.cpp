// tutti-worker: the executable that links libtorch. `tutti` starts it on the nodes; people only check it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "base/version/version.hpp"
#include "learn/train/check.hpp"
#include "learn/train/leave.hpp"
#include "serve/check/check.hpp"
#include "worker/check.hpp"
#include "worker/check_comm.hpp"
#include "worker/model.hpp"
#include "worker/script.hpp"
#include "worker/train.hpp"

namespace {

constexpr const char* usage_text =
    "usage: tutti-worker --version    which worker and which libtorch this is\n"
    "       tutti-worker check        multiplies matrices on every device and compares with the exact "
    "result\n"
    "       tutti-worker check-comm   as a rank of a job: runs every collective on tensors and compares with "
    "libtorch\n"
    "       tutti-worker check-train  compares the trainer's arithmetic with libtorch's on this machine\n"
    "       tutti-worker check-serve [adapters|FOLDER]   compares a GPU's answers with the CPU's, also with "
    "adapters, or with a peer's in FOLDER\n"
    "       tutti-worker bench-serve [ways|fp8|kernels]   how fast the first GPU answers: 1.1 billion random "
    "weights\n"
    "       tutti-worker train RUN [BYTES [FILE]]   as a rank of a job that has so much memory: trains what "
    "FILE or RUN/recipe.json says; `tutti train` submits it\n"
    "       tutti-worker model MODEL OPTIONS   computes for a `tutti engine`, which starts it\n"
    "       tutti-worker script MODEL OPTIONS  the same for a TorchScript model\n";

int report(const tutti::Error& error) {
  std::fprintf(stderr, "tutti-worker: %s\n", error.text().c_str());
  if (!error.remedy().empty()) std::fprintf(stderr, "  %s\n", error.remedy().c_str());
  return error.code() == tutti::ErrorCode::invalid ? 2 : 1;
}

int exit_code(const tutti::Result<int>& result) { return result ? *result : report(result.error()); }

// Of a rank, which would be started again: what is wrong with the request stays wrong.
int exit_code_of_rank(const tutti::Result<int>& result) {
  if (result) return *result;
  report(result.error());
  return tutti::train::exit_code_of(result.error());
}

int print_version() {
  const std::string number(tutti::version());
  const std::string at(tutti::commit());
  std::printf("tutti-worker %s (%s), %s\n", number.c_str(), at.c_str(), tutti::worker::describe().c_str());
  return 0;
}

int check() {
  const auto checked = tutti::worker::check();
  if (!checked) return report(checked.error());
  std::printf("tutti-worker: %s; matrix products are exact on %s\n", tutti::worker::describe().c_str(),
              checked->c_str());
  return 0;
}

int check_comm() {
  const auto checked = tutti::worker::check_comm();
  if (!checked) return report(checked.error());
  std::fputs(checked->c_str(), stdout);
  return 0;
}

void print_line(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

int exit_code(const tutti::Result<>& result) { return result ? 0 : report(result.error()); }

}  // namespace

int main(int argc, char** argv) {
  // Streams of groups that wait for other ranks must not hold up one another: each gets a line of its own to
  // the device. Read when the device is first used.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string word = words.empty() ? "" : words.front();
  const std::span<const std::string> rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (word == "train") return exit_code_of_rank(tutti::worker::train(rest));
  if (word == "model") return exit_code(tutti::worker::host_model(rest));
  if (word == "script") return exit_code(tutti::worker::host_script(rest));
  if (word == "check-serve" && rest.size() == 1 && rest.front() == "adapters")
    return exit_code(tutti::serve::check_gpu_adapters(print_line));
  if (word == "check-serve" && rest.size() == 1)
    return exit_code(tutti::serve::check_folder(rest.front(), print_line));
  if (word == "bench-serve" && rest.size() <= 1)
    return exit_code(tutti::serve::bench_gpu(rest.empty() ? "" : rest.front(), print_line));
  if (rest.empty()) {
    if (word == "--version") return print_version();
    if (word == "check") return check();
    if (word == "check-comm") return check_comm();
    if (word == "check-train") return exit_code(tutti::train::check(print_line));
    if (word == "check-serve") return exit_code(tutti::serve::check_gpu(print_line));
    if (word == "--help" || word == "help") return std::fputs(usage_text, stdout) < 0 ? 1 : 0;
  }
  const std::vector<std::string> known{"--version",   "check", "check-comm", "check-train", "check-serve",
                                       "bench-serve", "train", "model",      "script",      "--help"};
  const bool is_known = std::find(known.begin(), known.end(), word) != known.end();
  return report(
      tutti::invalid(is_known ? "'" + word + "' has other arguments" : "unknown word '" + word + "'")
          .within("command line")
          .remedy(is_known ? "" : tutti::did_you_mean(word, known))
          .remedy("`tutti-worker --help` shows the usage"));
}
