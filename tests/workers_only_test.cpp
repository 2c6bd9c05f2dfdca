// tutti-worker is built wherever there is libtorch and nothing else: it is configured as there, its sources
// are read, and what they include must be the project's own, libtorch's, CUDA's, or come with the compiler.
#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using support::has;
using support::lines_of;
using support::read_text;
using support::run;

// Of C and of Linux. What C++ has of its own is known by its name, which has neither a dot nor a slash.
const std::set<std::string> system_headers{
    "arpa/inet.h",    "cpuid.h",       "dirent.h",        "dlfcn.h",       "fcntl.h",       "ifaddrs.h",
    "immintrin.h",    "linux/futex.h", "linux/openat2.h", "malloc.h",      "net/if.h",      "netdb.h",
    "netinet/in.h",   "netinet/tcp.h", "poll.h",          "sched.h",       "signal.h",      "spawn.h",
    "stdlib.h",       "sys/eventfd.h", "sys/file.h",      "sys/mman.h",    "sys/mount.h",   "sys/random.h",
    "sys/resource.h", "sys/socket.h",  "sys/stat.h",      "sys/statvfs.h", "sys/syscall.h", "sys/time.h",
    "sys/types.h",    "sys/uio.h",     "sys/wait.h",      "time.h",        "ucontext.h",    "unistd.h"};
const std::set<std::string> cuda_headers{"cublasLt.h", "cuda_bf16.h",    "cuda_fp16.h",
                                         "cuda_fp8.h", "cuda_runtime.h", "cuda_runtime_api.h"};

bool may_be_included(const std::string& header) {
  if (header.find_first_of("./") == std::string::npos) return true;
  const auto begins = [&](const char* folder) { return header.starts_with(folder); };
  return system_headers.contains(header) || cuda_headers.contains(header) || begins("ATen/") ||
         begins("c10/") || begins("torch/");
}

// What a source includes in <>, as far as workers may not.
std::string wrong_includes_of(const std::string& text) {
  std::string wrong;
  for (const std::string& line : lines_of(text)) {
    const std::size_t open = line.find('<');
    if (!line.starts_with("#") || !has(line, "include") || open == std::string::npos) continue;
    const std::string header = line.substr(open + 1, line.find('>', open) - open - 1);
    if (!may_be_included(header)) wrong += " " + header;
  }
  return wrong;
}

// A library is looked for nowhere but where the project itself looks: the trace has its own files alone.
bool may_be_looked_for(const std::string& line) {
  return has(line, "find_package(Torch ") || has(line, "find_package(CUDAToolkit ") ||
         has(line, "find_file(cublas_lt_header ") || has(line, "find_program(TUTTI_");
}

// The files of the project that a compiler reads for a command of compile_commands.json; none if it cannot.
std::vector<std::string> files_read(std::string command, const std::string& folder) {
  const std::size_t output = command.find(" -o ");
  const std::size_t compile = command.find(" -c ");
  if (output == std::string::npos || compile == std::string::npos) return {};
  command.erase(output, compile - output).replace(command.find(" -c "), 4, " ");
  const auto done = run({"sh", "-c", "cd '" + folder + "' && " + command + " -MM"});
  EXPECT_EQ(done.exit_code, 0) << command << "\n" << done.err;
  std::istringstream words(done.out.substr(std::min(done.out.find(':'), done.out.size() - 1) + 1));
  std::vector<std::string> files;
  for (std::string word; words >> word;)
    if (word != "\\") files.push_back(word);
  return files;
}

TEST(WorkersOnly, NeedLibtorchAndNothingElse) {
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  const support::TempFolder folder;
  const std::string build = folder.path() + "/build";
  const std::string trace = folder.path() + "/trace";
  // Large batches: what the sources of a module include is read once.
  std::vector<std::string> configure{"cmake",
                                     "-S",
                                     TUTTI_SOURCE_DIR,
                                     "-B",
                                     build,
                                     "-G",
                                     "Ninja",
                                     "-DTUTTI_WORKERS_ONLY=ON",
                                     "-DTUTTI_BATCH_BYTES=1000000",
                                     "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                                     "-DCMAKE_CXX_COMPILER=" TUTTI_CXX,
                                     "--trace-redirect=" + trace,
                                     "--trace-source=CMakeLists.txt"};
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/cmake"))
    if (file.path().extension() == ".cmake")
      configure.push_back("--trace-source=" + file.path().filename().string());
  const auto configured = run(configure);
  ASSERT_EQ(configured.exit_code, 0) << configured.err;
  bool looks_for_torch = false;
  for (const std::string& line : lines_of(read_text(trace))) {
    looks_for_torch = looks_for_torch || has(line, "find_package(Torch ");
    EXPECT_TRUE(!has(line, " find_") || may_be_looked_for(line)) << line;
  }
  EXPECT_TRUE(looks_for_torch) << "the trace has nothing to look at";

  const auto commands = ::tutti::json::parse(read_text(build + "/compile_commands.json"));
  ASSERT_TRUE(commands) << commands.error().text();
  std::set<std::string> files;
  for (const ::tutti::json::Value& unit : *commands->list()) {
    if (has(*unit.find("file")->text(), "/generated/")) continue;  // made by the build
    const auto read = files_read(*unit.find("command")->text(), *unit.find("directory")->text());
    EXPECT_GT(read.size(), 1U) << *unit.find("command")->text();
    for (const std::string& file : read) files.insert(std::filesystem::canonical(file).string());
  }
  // nvcc's are not among the commands of the C++ compiler.
  for (const auto& file : std::filesystem::recursive_directory_iterator(TUTTI_SOURCE_DIR "/src"))
    if (file.path().extension() == ".cu") files.insert(file.path().string());
  EXPECT_GT(files.size(), 200U);
  const std::string own = std::filesystem::canonical(TUTTI_SOURCE_DIR).string() + "/";
  for (const std::string& file : files) {
    EXPECT_TRUE(file.starts_with(own) || file.starts_with(build)) << file;
    EXPECT_EQ(wrong_includes_of(read_text(file)), "") << file;
  }
}

TEST(WorkersOnly, AnyOtherLibraryIsSeen) {
  EXPECT_EQ(wrong_includes_of("#include <vector>\n#include <sys/stat.h>\n#  include <ATen/ATen.h>\n"
                              "#include \"base/result.hpp\"\n#include <cuda_bf16.h>\nint x = 1 < 2;\n"),
            "");
  EXPECT_EQ(wrong_includes_of(
                "#include <openssl/sha.h>\n#include <google/protobuf/message.h>\n#include <zlib.h>\n"),
            " openssl/sha.h google/protobuf/message.h zlib.h");
  EXPECT_TRUE(may_be_looked_for("cmake/dependencies.cmake(6):  find_package(Torch QUIET )"));
  EXPECT_FALSE(may_be_looked_for("src/worker/CMakeLists.txt(3):  find_library(zstd NAMES libzstd.a )"));
}

}  // namespace
}  // namespace tutti
