#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

// "file:line rule", one for each finding: what a test compares.
std::vector<std::string> places(const Findings& findings) {
  std::vector<std::string> places;
  for (const auto& finding : findings)
    places.push_back(finding.file + ":" + std::to_string(finding.line) + " " + finding.rule);
  std::sort(places.begin(), places.end());
  return places;
}
using Places = std::vector<std::string>;

// A small house in good order; each test breaks one rule in it.
Tree house() {
  Tree tree;
  tree.plant("src/CMakeLists.txt",
             "tutti_module(base LAYER base)\n"
             "tutti_module(cluster LAYER pure USES base)\n"
             "tutti_module(store LAYER ports USES base)\n"
             "tutti_module(controller LAYER shells USES base cluster store\n"
             "  NEEDS boost)\n"
             "tutti_module(comm LAYER workers USES base)\n");
  tree.plant("src/base/result.hpp", "#pragma once\n#include <string>\n");
  tree.plant("src/base/result.cpp", "#include \"base/result.hpp\"\n");
  tree.plant("src/cluster/state.hpp", "#pragma once\n#include \"base/result.hpp\"\n");
  tree.plant("src/cluster/state.cpp", "#include \"cluster/state.hpp\"\n");
  tree.plant("src/controller/loop.cpp", "#include <boost/asio.hpp>\n#include \"cluster/state.hpp\"\n");
  tree.plant("README.md", "```sh\n./dev test\n```\n");
  return tree;
}

TEST(Tidy, AHouseInOrderHasNoFindings) {
  const Tree tree = house();
  const auto modules = read_modules(tree);
  ASSERT_EQ(modules.size(), 5U);
  EXPECT_EQ(modules[3].uses, (std::vector<std::string>{"base", "cluster", "store"}));
  EXPECT_EQ(places(check_layers(modules)), Places());
  EXPECT_EQ(places(check_includes(tree, modules)), Places());
  EXPECT_EQ(places(check_borders(tree, modules)), Places());
  EXPECT_EQ(places(check_unordered(tree, modules)), Places());
  EXPECT_EQ(places(check_dead_files(tree, modules)), Places());
  EXPECT_EQ(places(check_long_files(tree)), Places());
  EXPECT_EQ(places(check_commented_code(tree)), Places());
  EXPECT_EQ(places(check_home_paths(tree)), Places());
}

// Two rooms: whoever stands in `top` may use `base`.
Tree rooms() {
  Tree tree;
  tree.plant("src/CMakeLists.txt", "tutti_room(base)\ntutti_room(top USES base)  # above it\n");
  tree.plant("src/base/CMakeLists.txt",
             "tutti_module(base LAYER base)\ntutti_module(base/hash LAYER base)\n");
  tree.plant("src/top/CMakeLists.txt", "tutti_module(top/a LAYER pure USES base/hash)\n");
  tree.plant("src/base/README.md", "`base`, `hash`\n");
  tree.plant("src/top/README.md", "`a`\n");
  return tree;
}

Places found_in_rooms(const Tree& tree) {
  return places(check_rooms(tree, read_rooms(tree), read_modules(tree)));
}

TEST(Tidy, RoomsInOrderHaveNoFindings) { EXPECT_EQ(found_in_rooms(rooms()), Places()); }

TEST(Tidy, FindsARoomThatUsesWhatItMayNot) {
  Tree tree = rooms();
  tree.plant("src/base/CMakeLists.txt",
             "tutti_module(base LAYER base)\ntutti_module(base/hash LAYER base USES top/a)\n");
  EXPECT_EQ(found_in_rooms(tree), (Places{"src/CMakeLists.txt:1 rooms"}));
  tree.plant("src/CMakeLists.txt", "tutti_room(base USES top)\ntutti_room(top USES base)\n");
  EXPECT_EQ(found_in_rooms(tree), (Places{"src/CMakeLists.txt:1 rooms", "src/CMakeLists.txt:2 rooms"}))
      << "a circle";
}

TEST(Tidy, FindsARoomThatIsNamedAndNotUsed) {
  Tree tree = rooms();
  tree.plant("src/top/CMakeLists.txt", "tutti_module(top/a LAYER pure)\n");
  EXPECT_EQ(found_in_rooms(tree), (Places{"src/CMakeLists.txt:2 rooms"}));
}

TEST(Tidy, FindsAModuleWithoutARoom) {
  Tree tree = rooms();
  tree.plant("src/CMakeLists.txt", "tutti_room(base)\n");
  EXPECT_EQ(found_in_rooms(tree), (Places{"src/top/CMakeLists.txt:1 rooms"}));
}

TEST(Tidy, FindsARoomWhosePageIsAbsentTooLongOrForgetsAModule) {
  Tree tree = rooms();
  tree.files.erase("src/base/README.md");
  std::string text = "no module\n";
  for (int line = 1; line <= 60; ++line) text += "more\n";
  tree.plant("src/top/README.md", text);
  EXPECT_EQ(found_in_rooms(tree), (Places{"src/CMakeLists.txt:1 rooms", "src/top/README.md:1 rooms",
                                          "src/top/README.md:61 rooms"}));
}

TEST(Tidy, FindsALayerThatLooksUp) {
  Tree tree = house();
  tree.plant("src/CMakeLists.txt",
             "tutti_module(base LAYER base)\n"
             "tutti_module(cluster LAYER pure USES base store)\n"
             "tutti_module(store LAYER ports USES base)\n"
             "tutti_module(comm LAYER workers USES base desk)\n"
             "tutti_module(desk LAYER front USES base)\n"
             "tutti_module(train LAYER workers USES base comm store)\n"
             "tutti_module(odd LAYER cellar)\n"
             "tutti_module(lost LAYER pure USES nothing)\n"
             "tutti_module(serve/engine LAYER shells USES base)\n"
             "tutti_module(worker LAYER workers USES train serve/engine)\n");
  EXPECT_EQ(places(check_layers(read_modules(tree))),
            (Places{"src/CMakeLists.txt:2 layers", "src/CMakeLists.txt:4 layers",
                    "src/CMakeLists.txt:7 layers", "src/CMakeLists.txt:8 layers"}));
}

TEST(Tidy, FindsWhatWorkersAloneWouldNotHave) {
  Tree tree;
  tree.plant("src/CMakeLists.txt",
             "tutti_room(base)\n"
             "tutti_room(worker USES base net)\n"
             "if(NOT TUTTI_WORKERS_ONLY)\n"
             "  tutti_room(net USES base)\n"
             "endif()\n");
  tree.plant("src/base/CMakeLists.txt",
             "tutti_module(base LAYER base)\n"
             "if(NOT TUTTI_WORKERS_ONLY)\n"
             "  if(TARGET boost)\n"
             "    tutti_module(base/more LAYER base)\n"
             "  endif()\n"
             "endif()\n"
             "tutti_module(base/last LAYER base)\n");
  tree.plant("src/net/CMakeLists.txt", "tutti_module(net LAYER adapters USES base base/more)\n");
  tree.plant("src/worker/CMakeLists.txt",
             "tutti_module(worker LAYER workers USES base base/last)\n"
             "tutti_module(worker/one LAYER workers USES base base/more)\n"
             "tutti_module(worker/two LAYER workers USES base net)\n");
  EXPECT_EQ(places(check_layers(read_modules(tree))),
            (Places{"src/worker/CMakeLists.txt:2 layers", "src/worker/CMakeLists.txt:3 layers"}));
}

TEST(Tidy, FindsACircle) {
  Tree tree;
  tree.plant("src/CMakeLists.txt", "tutti_module(a LAYER pure USES b)\ntutti_module(b LAYER pure USES a)\n");
  EXPECT_EQ(places(check_layers(read_modules(tree))),
            (Places{"src/CMakeLists.txt:1 layers", "src/CMakeLists.txt:2 layers"}));
}

TEST(Tidy, FindsAnUndeclaredInclude) {
  Tree tree = house();
  tree.plant("src/cluster/state.cpp", "#include \"cluster/state.hpp\"\n\n#include \"store/store.hpp\"\n");
  tree.plant("src/store/store.hpp", "#pragma once\n");
  EXPECT_EQ(places(check_includes(tree, read_modules(tree))), (Places{"src/cluster/state.cpp:3 includes"}));
}

TEST(Tidy, FindsAnIncludeOfNoModule) {
  Tree tree = house();
  tree.plant("src/cluster/state.cpp", "#include \"state.hpp\"\n#include \"base/absent.hpp\"\n");
  EXPECT_EQ(places(check_includes(tree, read_modules(tree))),
            (Places{"src/cluster/state.cpp:1 includes", "src/cluster/state.cpp:2 includes"}));
}

TEST(Tidy, FindsTorchOutsideTheWorkers) {
  Tree tree = house();
  tree.plant("src/controller/loop.cpp", "#include <torch/torch.h>\n");
  tree.plant("src/comm/ring.cpp", "#include <torch/torch.h>\n");
  EXPECT_EQ(places(check_includes(tree, read_modules(tree))), (Places{"src/controller/loop.cpp:1 includes"}));
}

TEST(Tidy, FindsAHeavyHeaderThatCrossesABorder) {
  Tree tree = house();
  tree.plant("src/store/store.hpp", "#pragma once\n#include \"store/detail.hpp\"\n");
  tree.plant("src/store/detail.hpp", "#pragma once\n#include <boost/json.hpp>\n");
  EXPECT_EQ(places(check_borders(tree, read_modules(tree))), Places()) << "inside its own module it is fine";
  tree.plant("src/controller/loop.cpp", "#include \"store/store.hpp\"\n");
  EXPECT_EQ(places(check_borders(tree, read_modules(tree))), (Places{"src/store/detail.hpp:2 borders"}));
}

TEST(Tidy, FindsAnUnorderedContainerInAPureModule) {
  Tree tree = house();
  const std::string text = "#include <unordered_map>\nstd::unordered_map<int, int> ids;\n";
  tree.plant("src/cluster/state.cpp", text);
  tree.plant("src/controller/loop.cpp", text);
  EXPECT_EQ(places(check_unordered(tree, read_modules(tree))),
            (Places{"src/cluster/state.cpp:1 unordered", "src/cluster/state.cpp:2 unordered"}));
}

// Compiles a library that does what pure code must not, and one that does not.
class Symbols : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tidy_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern + "/";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Findings check(const std::string& source) {
    std::ofstream(folder_ + "planted.cpp") << source;
    const std::string build =
        "cd " + folder_ +
        " && g++ -std=c++20 -g -c planted.cpp && rm -f planted.a && ar cr planted.a planted.o";
    EXPECT_EQ(std::system(build.c_str()), 0);
    auto findings = check_symbols({.name = "cluster",
                                   .layer = "pure",
                                   .folder = "src/cluster",
                                   .uses = {},
                                   .tests_use = {},
                                   .file = "",
                                   .line = 0},
                                  folder_ + "planted.a");
    EXPECT_TRUE(findings.ok());
    return std::move(findings).value_or({});
  }

  // The line and the reason of the one finding.
  std::string only(const std::string& source) {
    const auto findings = check(source);
    if (findings.size() != 1) return std::to_string(findings.size()) + " findings";
    const bool named = findings[0].file.ends_with("planted.cpp");
    return (named ? "" : findings[0].file + ":") + std::to_string(findings[0].line) + ": " +
           findings[0].message;
  }

  std::string folder_;
};

TEST_F(Symbols, PureCodePasses) {
  EXPECT_EQ(check("#include <cstdio>\n#include <map>\nint f(std::map<int, int>& m) { std::fputs(\"x\", "
                  "stderr); return m[1]; }\n")
                .size(),
            0U);
}
TEST_F(Symbols, FindsClocks) {
  EXPECT_EQ(only("#include <ctime>\nlong f() {\n  return time(nullptr);\n}\n"),
            "3: the pure module cluster reads a clock: time");
  EXPECT_NE(only("#include <chrono>\nauto f() { return std::chrono::steady_clock::now(); }\n")
                .find("reads a clock"),
            std::string::npos);
}
TEST_F(Symbols, FindsTheEnvironment) {
  EXPECT_EQ(only("#include <cstdlib>\nchar* f() {\n  return std::getenv(\"HOME\");\n}\n"),
            "3: the pure module cluster reads the environment: getenv");
}
TEST_F(Symbols, FindsRandomDevices) {
  const auto findings =
      check("#include <random>\nunsigned f() {\n  std::random_device device;\n  return device();\n}\n");
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings[0].message.find("no seed controls"), std::string::npos);
}
TEST_F(Symbols, FindsFileStreams) {
  const auto findings = check("#include <fstream>\nvoid f() {\n  std::ofstream(\"x\") << 1;\n}\n");
  ASSERT_FALSE(findings.empty());
  EXPECT_NE(findings[0].message.find("touches files"), std::string::npos);
}
TEST_F(Symbols, FindsThreadsSocketsAndProcesses) {
  EXPECT_EQ(only("#include <unistd.h>\nvoid f() {\n  usleep(1);\n}\n"),
            "3: the pure module cluster starts threads or waits: usleep");
  EXPECT_EQ(only("#include <sys/socket.h>\nint f() {\n  return socket(1, 1, 0);\n}\n"),
            "3: the pure module cluster opens sockets: socket");
  EXPECT_EQ(only("#include <unistd.h>\nint f() {\n  return fork();\n}\n"),
            "3: the pure module cluster deals with processes: fork");
}

TEST(Tidy, FindsDeadFiles) {
  Tree tree = house();
  tree.plant("src/base/forgotten.hpp", "#pragma once\n");
  tree.plant("src/attic/old.cpp", "int old;\n");
  tree.plant("docs/lost.md", "Nobody links here.\n");
  tree.plant("docs/linked.md", "Somebody does.\n");
  tree.plant("docs/README.md", "[see](linked.md)\n");
  EXPECT_EQ(places(check_dead_files(tree, read_modules(tree))),
            (Places{"docs/lost.md:1 dead", "src/attic/old.cpp:1 dead", "src/base/forgotten.hpp:1 dead"}));
}

TEST(Tidy, FindsLongFiles) {
  Tree tree = house();
  std::string text;
  for (int line = 0; line < 800; ++line) text += "int x;\n";
  tree.plant("src/base/result.cpp", text);
  EXPECT_EQ(places(check_long_files(tree)), Places());
  tree.plant("src/base/result.cpp", text + "int y;\n");
  EXPECT_EQ(places(check_long_files(tree)), (Places{"src/base/result.cpp:801 long"}));
}

TEST(Tidy, FindsCommentedOutCode) {
  const std::string slashes = "//";
  for (const char* code :
       {" int old = compute(3);", " return false;", " if (ready) {", " }", " send(message);",
        "#include <map>", " state.count++;", " std::string name;", " else {"}) {
    Tree tree;
    tree.plant("src/base/a.cpp", "int kept;\n" + slashes + code + "\nint also;  " + slashes + code + "\n");
    EXPECT_EQ(places(check_commented_code(tree)),
              (Places{"src/base/a.cpp:2 commented-out", "src/base/a.cpp:3 commented-out"}))
        << code;
  }
}

TEST(Tidy, LeavesProseAlone) {
  const std::string slashes = "//";
  for (const char* prose :
       {" If the disk is full, the commit fails; the driver reloads.",
        " Durable before visible: commit, then send.", "   auto example = indented(by_three);",
        " namespace tutti", " for each rank, in order", " see f(x) = x;  y"}) {
    Tree tree;
    tree.plant("src/base/a.cpp", slashes + prose + "\n");
    EXPECT_EQ(places(check_commented_code(tree)), Places()) << prose;
  }
  Tree tree;
  tree.plant("src/base/a.cpp", "const char* url = \"http:" + slashes + "host/f(x);\";\n");
  EXPECT_EQ(places(check_commented_code(tree)), Places()) << "a string is no comment";
}

TEST(Tidy, FindsHomePaths) {
  const std::string slash = "/";
  Tree tree;
  tree.plant("docs/a.md", "fine: /usr/lib, ~/.tutti, home/x, http://host/home/x\nbad: " + slash +
                              "home/ada/run\n" + slash + "root/x\n");
  EXPECT_EQ(places(check_home_paths(tree)), (Places{"docs/a.md:2 home-path", "docs/a.md:3 home-path"}));
}

TEST(Tidy, FindsCommandsThatDoNotExist) {
  const HelpOf help_of = [](const std::string& program,
                            const std::string& command) -> std::optional<std::string> {
    if (program == "./dev" && command == "test") return "test";
    if (program == "tutti" && command == "run") return "--ranks N  --help";
    return std::nullopt;
  };
  Tree tree;
  tree.plant("tools/demo", "");
  tree.plant("README.md",
             "Run `./dev test`, not `./dev tset`; `tutti COMMAND` is a shape.\n"  // 1: tset
             "```console\n"
             "$ ./dev test -R x\n"
             "$ tutti run --ranks 2 -- python3 train.py --lr 1\n"
             "$ tutti run --rnaks 2\n"  // 5
             "$ tutti fly\n"            // 6
             "tutti fly is output here\n"
             "```\n"
             "```sh\n"
             "git clone URL\n"
             "tools/demo\n"
             "./absent\n"    // 12
             "frobnicate\n"  // 13
             "```\n");
  EXPECT_EQ(places(check_commands(tree, help_of)),
            (Places{"README.md:1 commands", "README.md:12 commands", "README.md:13 commands",
                    "README.md:5 commands", "README.md:6 commands"}));
}

TEST(Tidy, FindsAFaultWhoseTestIsNotThere) {
  Tree tree;
  const std::string test = "TEST";
  tree.plant("tests/faults_test.cpp",
             test + "(Faults, AKilledNodeIsMissed) {\n" + test + "_F(Faults,\n       AFrozenOneIsToo) {\n");
  tree.plant("src/base/lane_test.cpp", test + "(LaneTest, WaitsForRoom) {\n");
  tree.plant("docs/faults.md",
             "| fault | what happens | tested by |\n|---|---|---|\n"
             "| a node dies | `tutti` says so | `AKilledNodeIsMissed`, `AFrozenOneIsToo` |\n"
             "| no room | it waits | `LaneTest.WaitsForRoom` ([lane_test](../src/base/lane_test.cpp)), "
             "`LaneTest.Waits*`, "
             "`.WaitsForRoom`, `LaneTest` |\n"
             "| many | `Anything` | `./dev bench controller` measures it |\n");
  EXPECT_EQ(places(check_faults(tree)), Places());
  tree.plant("docs/faults.md",
             "| a node dies | it is missed | `AKilledNodeIsForgotten` ([old_test](../tests/old_test.cpp)) |\n"
             "| no room | it waits | `LaneTest.WaitsForRoom`, `.Falls`, `Faults.WaitsForRoom`, "
             "`LaneTest.Falls*` |\n");
  EXPECT_EQ(places(check_faults(tree)),
            (Places{"docs/faults.md:1 faults", "docs/faults.md:1 faults", "docs/faults.md:2 faults",
                    "docs/faults.md:2 faults", "docs/faults.md:2 faults"}));
}

TEST(Tidy, FindsARequestThatIsAnsweredBesideTheTable) {
  Tree tree;
  const std::string compares = "if (path == \"/api/v1/secret\") answer();\n";
  tree.plant("src/control/controller/routes.hpp", "constexpr std::string_view api_prefix = \"/api/v1\";\n");
  tree.plant("src/control/controller/routes_jobs.cpp", "Route{.path = \"/jobs\"}\n");
  tree.plant("src/control/controller/routes_test.cpp", compares);
  tree.plant("src/cli/jobs.cpp", compares);
  EXPECT_EQ(places(check_prefix(tree)), Places()) << "clients and tests may name paths";
  tree.plant("src/control/controller/api.cpp", "\n" + compares);
  tree.plant("src/control/controller/hub.cpp", "if (parts[0] == \"api\") answer();\n");
  tree.plant("src/control/driver/turns.hpp", compares);
  EXPECT_EQ(places(check_prefix(tree)),
            (Places{"src/control/controller/api.cpp:2 routes", "src/control/controller/hub.cpp:1 routes",
                    "src/control/driver/turns.hpp:1 routes"}));
}

TEST(Tidy, FindsADocumentThatShowsOtherRoutes) {
  const RouteTable table{"docs/api.md", "tutti api --markdown"};
  const std::string markdown = "| request |\n|---|\n| `GET /jobs` |\n| `GET /nodes` |\n";
  const auto document = [](const std::string& shown) {
    Tree tree;
    tree.plant("docs/api.md", "# The API\n\n<!-- tutti api --markdown -->\n" + shown + "<!-- end -->\n");
    return tree;
  };
  EXPECT_EQ(places(check_route_table(document(markdown), table, markdown)), Places());
  EXPECT_EQ(places(check_route_table(document("| request |\n|---|\n| `GET /jobs` |\n"), table, markdown)),
            (Places{"docs/api.md:7 routes"}))
      << "a row is missing";
  EXPECT_EQ(places(check_route_table(document("| request |\n|---|\n| `PUT /jobs` |\n"), table, markdown)),
            (Places{"docs/api.md:6 routes"}));
  EXPECT_EQ(places(check_route_table(document(markdown + "| `GET /old` |\n"), table, markdown)),
            (Places{"docs/api.md:8 routes"}));
  Tree unmarked;
  unmarked.plant("docs/api.md", "# The API\n" + markdown);
  EXPECT_EQ(places(check_route_table(unmarked, table, markdown)), (Places{"docs/api.md:1 routes"}));
  EXPECT_EQ(places(check_route_table(Tree(), table, markdown)), (Places{"docs/api.md:1 routes"}));
}

TEST(Tidy, ADocumentCanShowTwoTables) {
  Tree tree;
  tree.plant("docs/a.md", "<!-- one -->\n| 1 |\n<!-- end -->\n\n<!-- two -->\n| 2 |\n<!-- end -->\n");
  EXPECT_EQ(places(check_route_table(tree, {"docs/a.md", "one"}, "| 1 |\n")), Places());
  EXPECT_EQ(places(check_route_table(tree, {"docs/a.md", "two"}, "| 2 |\n")), Places());
  EXPECT_EQ(places(check_route_table(tree, {"docs/a.md", "two"}, "| 3 |\n")), (Places{"docs/a.md:6 routes"}));
}

}  // namespace
}  // namespace tutti::tidy
