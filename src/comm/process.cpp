#include "comm/process.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tutti::comm {
namespace {

std::string link_target(const char* path) {
  std::array<char, 128> target{};
  const ssize_t size = readlink(path, target.data(), target.size() - 1);
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : "";
}

}  // namespace

ProcessSample sample_process(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // The name in parentheses may hold anything; the fields begin behind its last one.
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(text.substr(end_of_name + 1));
  ProcessSample sample;
  std::string skipped;
  fields >> sample.state;
  for (int field = 4; field < 14; ++field) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  fields >> user >> system;
  sample.cpu_ticks = user + system;
  return sample;
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // Containers and network namespaces of one machine are hosts of their own.
  return boot + " " + link_target("/proc/self/ns/pid") + " " + link_target("/proc/self/ns/net");
}

std::string node_name() {
  if (const char* const node = std::getenv("TUTTI_NODE"); node != nullptr && *node != '\0') return node;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace tutti::comm
