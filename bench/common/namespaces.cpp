#include "common/namespaces.hpp"

#include <unistd.h>

#include <filesystem>

#include "base/text.hpp"
#include "support/process.hpp"

namespace tutti::bench {
namespace {

constexpr const char* link_name = "veth0";

bool installed() { return std::filesystem::exists("/usr/sbin/tc") || std::filesystem::exists("/sbin/tc"); }

Result<> run_all(const std::vector<std::vector<std::string>>& commands) {
  for (const auto& words : commands) {
    if (auto done = run_command(words, {}); !done) return std::move(done).error();
  }
  return {};
}

}  // namespace

VethPair::VethPair() {
  const std::string prefix = "tutti-bench-" + std::to_string(::getpid()) + "-";
  names_ = {prefix + "0", prefix + "1"};
}

Result<std::unique_ptr<VethPair>> VethPair::make() {
  if (!installed()) return failed("no network namespaces: ip and tc are not installed (package iproute2)");
  if (::geteuid() != 0) return failed("no network namespaces: they need root");
  std::unique_ptr<VethPair> pair(new VethPair);
  if (auto joined = pair->join(); !joined) return std::move(joined).error().within("network namespaces");
  return pair;
}

// The ends are born inside their namespaces, so that no name is taken on this host.
Result<> VethPair::join() const {
  const auto& [one, other] = names_;
  auto made = run_all({{"ip", "netns", "add", one},
                       {"ip", "netns", "add", other},
                       {"ip", "link", "add", link_name, "netns", one, "type", "veth", "peer", "name",
                        link_name, "netns", other}});
  if (!made) return made;
  for (int end = 0; end < 2; ++end) {
    const std::string& name = names_.at(static_cast<std::size_t>(end));
    auto up = run_all({{"ip", "-n", name, "addr", "add", address(end) + "/24", "dev", link_name},
                       {"ip", "-n", name, "link", "set", "lo", "up"},
                       {"ip", "-n", name, "link", "set", link_name, "up"}});
    if (!up) return up;
  }
  return {};
}

// Also after an interrupt, when run_command runs nothing any more. The link goes with its namespaces.
VethPair::~VethPair() {
  for (const auto& name : names_) {
    if (std::filesystem::exists("/run/netns/" + name)) support::run({"ip", "netns", "del", name});
  }
}

Result<> VethPair::limit_rate(const std::string& rate) const {
  for (const auto& name : names_) {
    auto limited = run_command({"tc", "-n", name, "qdisc", "replace", "dev", link_name, "root", "tbf", "rate",
                                rate, "burst", "256kb", "latency", "20ms"},
                               {});
    if (!limited) return std::move(limited).error();
  }
  return {};
}

std::vector<std::string> VethPair::inside(int end, const std::vector<std::string>& words) const {
  std::vector<std::string> all{"ip", "netns", "exec", names_.at(static_cast<std::size_t>(end))};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Result<std::string> VethPair::run(const WordsOfRank& words_of_rank, Duration timeout) const {
  const support::TempFolder folder;
  const std::string file = folder.path() + "/rank_1";
  const support::Process other(inside(1, words_of_rank(1)), file);
  auto printed = run_command(inside(0, words_of_rank(0)), {}, timeout);
  if (printed) return printed;
  const std::string said(trim(support::read_text(file + ".err")));
  if (said.empty()) return printed;
  return std::move(printed).error().within("rank 1 said '" + said + "', rank 0");
}

}  // namespace tutti::bench
