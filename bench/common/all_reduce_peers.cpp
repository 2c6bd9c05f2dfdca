#include "common/all_reduce_peers.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "support/process.hpp"

namespace tutti::bench {
namespace {

constexpr Duration peer_time_max = 300s;
constexpr const char* mpi_program = TUTTI_BUILD_DIR "/bin/peer_mpi_all_reduce";
constexpr const char* gloo_program = TUTTI_BUILD_DIR "/bin/peer_gloo_all_reduce";

Result<> check_built(const char* program, const std::string& packages) {
  if (std::filesystem::exists(program)) return {};
  return failed("not installed (packages " + packages + ", then cmake --preset release)");
}

// "{bytes, time_us}" a line.
Result<TimesUs> parse_times(Result<std::string> printed) {
  if (!printed) return std::move(printed).error();
  TimesUs times;
  for (const auto& line : support::lines_of(*printed)) {
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    if (parsed.is_object()) times[parsed.value("bytes", std::size_t{0})] = parsed.value("time_us", 0.0);
  }
  return times;
}

// SECONDS BYTES...
void append_workload(std::vector<std::string>& words, const Workload& workload) {
  words.push_back(std::to_string(workload.seconds));
  for (const std::size_t bytes : workload.sizes) words.push_back(std::to_string(bytes));
}

// ---- Open MPI

struct MpiSetting {
  const char* name;
  std::vector<std::string> words;
};

std::vector<std::string> tuned(const std::string& algorithm) {
  return {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", algorithm};
}

std::vector<MpiSetting> mpi_settings() {
  return {{"as it comes", {}},
          {"unbound", {"--bind-to", "none"}},
          {"unbound, yielding", {"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"}},
          {"vader alone", {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"}},
          {"reduce and broadcast", tuned("2")},
          {"recursive doubling", tuned("3")},
          {"ring", tuned("4")},
          {"segmented ring", tuned("5")},
          {"Rabenseifner", tuned("6")}};
}

// Where Open MPI keeps its files while it runs: it leaves them behind when it is killed.
class MpiFolder {
 public:
  MpiFolder() : path_("/dev/shm/tutti-bench-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  MpiFolder(const MpiFolder&) = delete;
  MpiFolder& operator=(const MpiFolder&) = delete;
  ~MpiFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<TimesUs> time_mpi(int ranks, const std::vector<std::string>& setting, const Workload& workload) {
  const MpiFolder folder;
  std::vector<std::string> words{"mpirun",
                                 "--allow-run-as-root",
                                 "--oversubscribe",
                                 "--mca",
                                 "orte_tmpdir_base",
                                 folder.path(),
                                 "--mca",
                                 "btl_vader_backing_directory",
                                 folder.path(),
                                 "-np",
                                 std::to_string(ranks)};
  words.insert(words.end(), setting.begin(), setting.end());
  words.emplace_back(mpi_program);
  append_workload(words, workload);
  return parse_times(run_command(words, {}, peer_time_max));
}

// ---- Gloo

constexpr std::array gloo_algorithms{"ring", "bcube", "ring_chunked", "halving_doubling"};

struct GlooRank {
  int ranks = 0;
  std::string rank;
  std::string store;
  std::string address;
};

std::vector<std::string> gloo_words(const GlooRank& who, const std::string& algorithm,
                                    const Workload& workload) {
  std::vector<std::string> words{gloo_program, std::to_string(who.ranks), who.rank, who.store, who.address,
                                 algorithm};
  append_workload(words, workload);
  return words;
}

Result<TimesUs> time_gloo(int ranks, const std::string& algorithm, const Workload& workload) {
  const support::TempFolder store;
  const GlooRank who{.ranks = ranks, .rank = "all", .store = store.path(), .address = "127.0.0.1"};
  return parse_times(run_command(gloo_words(who, algorithm, workload), {}, peer_time_max));
}

Result<TimesUs> time_gloo(const VethPair& pair, const std::string& algorithm, const Workload& workload) {
  const support::TempFolder store;
  const auto words_of_rank = [&](int rank) {
    const GlooRank who{
        .ranks = 2, .rank = std::to_string(rank), .store = store.path(), .address = VethPair::address(rank)};
    return gloo_words(who, algorithm, workload);
  };
  return parse_times(pair.run(words_of_rank, peer_time_max));
}

using TimeGloo = std::function<Result<TimesUs>(const std::string& algorithm, const Workload& workload)>;

Result<std::vector<Peer>> gloo_peers_by(const TimeGloo& time) {
  if (auto built = check_built(gloo_program, "libgloo-dev"); !built) return std::move(built).error();
  std::vector<Peer> peers;
  for (const std::string algorithm : gloo_algorithms) {
    peers.push_back(
        {.library = "Gloo", .setting = algorithm, .measure = [time, algorithm](const Workload& workload) {
           return time(algorithm, workload);
         }});
  }
  return peers;
}

// ---- the best of them

struct Timed {
  double time_us = 0;
  const Peer* peer = nullptr;
};

std::vector<Peer> first_of(std::vector<Timed> all, std::size_t count) {
  std::sort(all.begin(), all.end(), [](const Timed& a, const Timed& b) { return a.time_us < b.time_us; });
  all.resize(std::min(count, all.size()));
  std::vector<Peer> first;
  for (const Timed& timed : all) first.push_back(*timed.peer);
  return first;
}

}  // namespace

Result<std::vector<Peer>> mpi_peers(int ranks) {
  if (auto built = check_built(mpi_program, "openmpi-bin libopenmpi-dev"); !built)
    return std::move(built).error();
  std::vector<Peer> peers;
  for (const MpiSetting& setting : mpi_settings()) {
    peers.push_back({.library = "Open MPI",
                     .setting = setting.name,
                     .measure = [ranks, words = setting.words](const Workload& workload) {
                       return time_mpi(ranks, words, workload);
                     }});
  }
  return peers;
}

Result<std::vector<Peer>> gloo_peers(int ranks) {
  return gloo_peers_by([ranks](const std::string& algorithm, const Workload& workload) {
    return time_gloo(ranks, algorithm, workload);
  });
}

Result<std::vector<Peer>> gloo_peers(const VethPair& pair) {
  return gloo_peers_by([&pair](const std::string& algorithm, const Workload& workload) {
    return time_gloo(pair, algorithm, workload);
  });
}

Result<std::map<std::size_t, std::vector<Peer>>> fastest(const std::vector<Peer>& peers,
                                                         const Workload& workload, std::size_t count) {
  std::map<std::size_t, std::vector<Timed>> timed;
  for (const Peer& peer : peers) {
    auto times = peer.measure(workload);
    if (!times) return std::move(times).error();
    for (const std::size_t bytes : workload.sizes) {
      if (!times->contains(bytes)) return failed("printed no time").within(peer.library);
      timed[bytes].push_back({times->at(bytes), &peer});
    }
  }
  std::map<std::size_t, std::vector<Peer>> found;
  for (auto& [bytes, all] : timed) found[bytes] = first_of(std::move(all), count);
  return found;
}

}  // namespace tutti::bench
