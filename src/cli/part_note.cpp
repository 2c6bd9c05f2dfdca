#include "cli/part_note.hpp"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/files/files.hpp"

namespace tutti::cli {
namespace {

std::string noted_host() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), HOST_NAME_MAX) == 0 && name[0] != '\0' ? name.data() : "?";
}

}  // namespace

std::string place_of_home(const std::string& home) {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  const auto pids = std::filesystem::read_symlink("/proc/self/ns/pid", unknown);
  struct stat folder {};
  if (::stat(home.c_str(), &folder) != 0) folder = {};
  return boot + " " + (unknown ? "?" : pids.string()) + " " + std::to_string(folder.st_dev) + ":" +
         std::to_string(folder.st_ino);
}

// "PID START_TIME BOOT PID_NAMESPACE DEVICE:INODE HOST", then one word of its command line a line.
std::optional<PartNote> read_note(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  std::istringstream first(line);
  PartNote note;
  if (!(first >> note.process.pid >> note.process.start_time) || note.process.pid <= 0) return std::nullopt;
  std::string boot;
  std::string pids;
  std::string folder;
  if (first >> boot >> pids >> folder >> note.host) note.place = boot + " " + pids + " " + folder;
  while (std::getline(stream, line)) note.words.push_back(line);
  return note;
}

Result<> write_note(const std::string& file, const std::string& home, const rank::ShimProcess& process,
                    const std::vector<std::string>& words) {
  std::string text = std::to_string(process.pid) + " " + std::to_string(process.start_time) + " " +
                     place_of_home(home) + " " + noted_host() + "\n";
  for (const auto& word : words) text += word + "\n";
  return files::replace_file(file, text);
}

}  // namespace tutti::cli
