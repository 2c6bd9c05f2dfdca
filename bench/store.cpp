// bench/store: the controller's store at the most that is kept, after as many jobs again: its size on the
// disk, and how long a controller takes to open and read it, beside the floor (reading the bytes of the
// file).
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "control/store/sqlite/sqlite_store.hpp"
#include "control/wire/objects.hpp"

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t batch_jobs = 1000;

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

// A gang of eight that ran and ended.
cluster::Job job(std::uint64_t number) {
  cluster::Job job;
  job.id = cluster::JobId(number);
  job.spec.name = "train-" + std::to_string(number % 1000);
  job.spec.command = {"python3", "train.py", "--config", "configs/base.yaml"};
  job.spec.env = {"OMP_NUM_THREADS=8", "DATA=/data/corpus"};
  job.spec.workdir = "/data/project";
  job.spec.user = "ada";
  job.spec.shape.ranks = 8;
  job.spec.shape.gpu_share = 1000;
  job.state = cluster::JobState::succeeded;
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    job.places.push_back({"node-" + std::to_string(number % 500), {{rank, 1000}}});
    job.ranks.push_back({cluster::RankState::exited});
  }
  return job;
}

double read_file_ms(const std::string& path) {
  const auto begun = Clock::now();
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) continue;
  return ms_since(begun);
}

Result<> run(const std::string& folder) {
  const std::string path = folder + "/store.db";
  const std::uint64_t kept = cluster::kept_jobs_default;
  {
    auto store = store::SqliteStore::open(path);
    if (!store) return std::move(store).error();
    std::uint64_t revision = 0;
    for (std::uint64_t first = 1; first <= 2 * kept; first += batch_jobs) {
      std::vector<store::Write> writes;
      for (std::uint64_t number = first; number < first + batch_jobs; ++number) {
        writes.push_back({wire::job_key(cluster::JobId(number)), wire::encode(job(number))});
        writes.push_back({wire::asked_key(cluster::JobId(number)), wire::encode_asked(job(number).spec)});
        if (number <= kept) continue;
        writes.push_back({wire::job_key(cluster::JobId(number - kept)), std::nullopt});
        writes.push_back({wire::asked_key(cluster::JobId(number - kept)), std::nullopt});
      }
      const auto done = (*store)->commit(revision, writes);
      if (done.status != store::CommitResult::Status::done) return failed(done.why);
      revision = done.revision;
    }
  }
  std::printf("%llu jobs of 8 ranks kept of %llu\n", static_cast<unsigned long long>(kept),
              static_cast<unsigned long long>(2 * kept));
  std::printf("  size on disk              %8.1f MiB\n",
              static_cast<double>(std::filesystem::file_size(path)) / (1 << 20));
  const double floor_ms = read_file_ms(path);
  auto begun = Clock::now();
  auto store = store::SqliteStore::open(path);
  if (!store) return std::move(store).error();
  std::printf("  opened and checked in     %8.0f ms\n", ms_since(begun));
  begun = Clock::now();
  cluster::State state;
  const auto read = (*store)->read([&state](std::string_view key, std::string_view bytes) {
    return wire::decode_into(state, key, bytes);
  });
  if (!read) return read.error();
  cluster::derive(state, Instant(1s));
  const double load_ms = ms_since(begun);
  std::printf("  loaded into a state in    %8.0f ms   %.1f x the floor of %.0f ms\n", load_ms,
              load_ms / floor_ms, floor_ms);
  return {};
}

}  // namespace

int main() {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("tutti-bench-store." + std::to_string(::getpid()))).string();
  std::filesystem::create_directories(folder);
  const auto done = run(folder);
  std::filesystem::remove_all(folder);
  if (!done) std::fprintf(stderr, "bench/store: %s\n", done.error().text().c_str());
  return done ? 0 : 1;
}
