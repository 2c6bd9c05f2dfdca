// bench/startup: how long `tutti --version` takes, beside the floor (starting any program) and Slurm's sinfo.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr int runs = 500;

// Median milliseconds from spawn to exit, negative if the program does not run here.
double median_ms(const std::string& program, const std::string& argument) {
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) {
    char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(argument.c_str()),
                               nullptr};
    const auto start = std::chrono::steady_clock::now();
    pid_t child = 0;
    int status = 0;
    if (::posix_spawn(&child, program.c_str(), &quiet, nullptr, arguments, environ) != 0) return -1;
    ::waitpid(child, &status, 0);
    if (status != 0) return -1;
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  ::posix_spawn_file_actions_destroy(&quiet);
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[runs / 2];
}

}  // namespace

int main() {
  const double floor_ms = median_ms("/bin/true", "x");
  const double tutti_ms = median_ms(TUTTI_BUILD_DIR "/bin/tutti", "--version");
  const bool has_slurm = std::filesystem::exists("/usr/bin/sinfo");
  std::printf("median of %d starts\n", runs);
  std::printf("  /bin/true (the floor)  %6.2f ms\n", floor_ms);
  std::printf("  tutti --version        %6.2f ms   %.2f x the floor\n", tutti_ms, tutti_ms / floor_ms);
  if (has_slurm) {
    const double slurm_ms = median_ms("/usr/bin/sinfo", "--version");
    std::printf("  sinfo --version        %6.2f ms   tutti takes %.2f x of it\n", slurm_ms,
                tutti_ms / slurm_ms);
  } else {
    std::printf("  sinfo --version        not installed (package slurm-client)\n");
  }
  return tutti_ms < 0 ? 1 : 0;
}
