#include "cli/login_token.hpp"

#include <pwd.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/files/files.hpp"
#include "cli/cluster.hpp"
#include "control/controller/controller.hpp"
#include "control/people/door.hpp"

namespace tutti::cli {
namespace {

constexpr mode_t own_folder = 0700;
constexpr mode_t own_file = 0600;

std::string user_folder() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  const passwd* user = ::getpwuid(::getuid());
  return user == nullptr ? "/tmp" : user->pw_dir;
}

// As programs of a desktop have it: one that is no whole path does not count.
std::string settings_folder() {
  const char* chosen = std::getenv("XDG_CONFIG_HOME");
  if (chosen != nullptr && *chosen == '/') return std::string(chosen) + "/tutti";
  return user_folder() + "/.config/tutti";
}

}  // namespace

std::string login_token_file(const std::string& address) {
  return settings_folder() + "/token-" + url_encode(address);
}

Result<> keep_login_token(const std::string& address, const std::string& token) {
  const std::filesystem::path folder = settings_folder();
  if (auto made = files::make_folders(folder.parent_path().string()); !made) return made;
  if (auto made = files::make_folder(folder.string(), own_folder); !made) return made;
  return files::replace_file(login_token_file(address), token + "\n", {.mode = own_file, .durable = true});
}

std::string login_token_id(const std::string& address) {
  const auto token = controller::read_token(login_token_file(address));
  return token ? people::id_in(*token) : "";
}

Result<bool> forget_login_token(const std::string& address) {
  const std::string file = login_token_file(address);
  if (::unlink(file.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  return failed_errno("cannot remove " + file, errno);
}

}  // namespace tutti::cli
