// tutti-worker is built wherever there is libtorch and nothing else: it is configured as there, and its
// sources are read with every other library hidden.
#include <gtest/gtest.h>

#include "base/json/parse.hpp"
#include "support/process.hpp"

namespace tutti {
namespace {

using support::run;

// A header of each library that tutti stands on and a worker must not.
constexpr const char* hidden_headers[] = {"nlohmann/json.hpp",
                                          "nlohmann/json_fwd.hpp",
                                          "xxhash.h",
                                          "fmt/core.h",
                                          "fmt/format.h",
                                          "spdlog/spdlog.h",
                                          "boost/version.hpp",
                                          "boost/config.hpp",
                                          "yaml-cpp/yaml.h",
                                          "CLI/CLI.hpp",
                                          "sqlite3.h",
                                          "openssl/ssl.h",
                                          "openssl/evp.h",
                                          "hwloc.h",
                                          "zlib.h",
                                          "gtest/gtest.h",
                                          "tutti.pb.h",
                                          "proto/tutti.pb.h"};

// Reads a source as the compiler would, up to the point where all that it includes is there.
support::Finished preprocess(const std::string& command, const std::string& folder) {
  return run({"sh", "-c", "cd '" + folder + "' && " + command + " -E -o /dev/null"});
}

TEST(WorkersOnly, NeedLibtorchAndNothingElse) {
  if (!TUTTI_HAS_WORKER) GTEST_SKIP() << "libtorch was not found, so tutti-worker is not built";
  const support::TempFolder folder;
  const std::string hidden = folder.path() + "/hidden";
  for (const std::string header : hidden_headers) {
    const std::string path = hidden + "/" + header;
    ASSERT_EQ(run({"mkdir", "-p", path.substr(0, path.rfind('/'))}).exit_code, 0);
    support::write_text(path, "#error \"" + header + " is hidden\"\n");
  }
  const std::string build = folder.path() + "/build";
  // Large batches: what the sources of a module include is read once.
  const auto configured =
      run({"cmake", "-S", TUTTI_SOURCE_DIR, "-B", build, "-G", "Ninja", "-DTUTTI_WORKERS_ONLY=ON",
           "-DTUTTI_BATCH_BYTES=1000000", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
           "-DCMAKE_CXX_COMPILER=" TUTTI_CXX, "-DCMAKE_CXX_FLAGS=-I" + hidden,
           "--trace-source=dependencies.cmake", "--trace-redirect=" + folder.path() + "/trace"});
  ASSERT_EQ(configured.exit_code, 0) << configured.err;
  for (const std::string& line : support::lines_of(support::read_text(folder.path() + "/trace"))) {
    EXPECT_TRUE(!support::has(line, " find_") || support::has(line, "find_package(Torch")) << line;
  }

  const auto commands = tutti::json::parse(support::read_text(build + "/compile_commands.json"));
  ASSERT_TRUE(commands) << commands.error().text();
  std::size_t read = 0;
  for (const tutti::json::Value& unit : *commands->list()) {
    const std::string& source = *unit.find("file")->text();
    if (support::has(source, "/generated/")) continue;  // made by the build
    std::string command = *unit.find("command")->text();
    const auto output = command.find(" -o ");
    const auto compile = command.find(" -c ");
    ASSERT_TRUE(output != std::string::npos && compile != std::string::npos) << command;
    command.erase(output, compile - output).replace(command.find(" -c "), 4, " ");
    const auto done = preprocess(command, *unit.find("directory")->text());
    EXPECT_EQ(done.exit_code, 0) << source << "\n" << done.err;
    ++read;
  }
  EXPECT_GT(read, 15U);
}

}  // namespace
}  // namespace tutti
