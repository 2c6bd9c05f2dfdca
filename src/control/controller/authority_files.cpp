#include "control/controller/authority_files.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/files/files.hpp"
#include "control/controller/random_text.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t authority_bytes_max = 64 << 10;
constexpr std::size_t cluster_name_bytes = 8;

std::string signer_file(const std::string& folder) { return folder + "/authority.pem"; }
std::string next_file(const std::string& folder) { return folder + "/authority-next.pem"; }
std::string old_file(const std::string& folder) { return folder + "/authority-old.pem"; }

bool is_there(const std::string& file) { return ::access(file.c_str(), F_OK) == 0; }

Result<std::optional<pki::Authority>> read(const std::string& file) {
  const auto text = files::read_file(file, authority_bytes_max);
  if (!text) return Error(text.error()).within("authority");
  if (!*text) return std::optional<pki::Authority>();
  auto authority = pki::read_authority(**text);
  if (!authority)
    return std::move(authority).error().within(file).remedy(
        "put it back from a copy of the folder: every node trusts what it has signed. Without a copy, "
        "move it away; `tutti controller init` makes another one, and the nodes join anew");
  return std::optional(std::move(*authority));
}

// Where there was one in the meantime, that one stays.
Result<> write_new(const std::string& file, const std::string& text) {
  const std::string made = file + ".made";
  if (auto written = files::replace_file(made, text, {.mode = 0600, .durable = true}); !written)
    return written;
  const bool linked = ::link(made.c_str(), file.c_str()) == 0;
  const int why = errno;
  ::unlink(made.c_str());
  if (!linked && why != EEXIST) return failed_errno("cannot make " + file, why);
  return files::sync_folder(file.substr(0, file.rfind('/')));
}

Result<> move(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return failed_errno("cannot rename " + from, errno);
  return files::sync_folder(to.substr(0, to.rfind('/')));
}

Result<std::string> certificate_of(const std::string& file) {
  auto authority = read(file);
  if (!authority) return std::move(authority).error();
  return *authority ? (*authority)->certificate : std::string();
}

}  // namespace

Result<> make_authority_file(const std::string& folder, Instant now) {
  // Between two renames of use_next_authority() there is none of this name.
  if (is_there(signer_file(folder)) || is_there(next_file(folder))) return {};
  auto cluster = random_hex(cluster_name_bytes);
  if (!cluster) return std::move(cluster).error();
  auto authority = pki::make_authority(*cluster, now);
  if (!authority) return std::move(authority).error();
  return write_new(signer_file(folder), authority->key + authority->certificate);
}

Result<std::optional<Authorities>> read_authorities(const std::string& folder) {
  if (!is_there(signer_file(folder)) && is_there(next_file(folder))) {
    if (auto moved = move(next_file(folder), signer_file(folder)); !moved) return std::move(moved).error();
  }
  auto signer = read(signer_file(folder));
  if (!signer) return std::move(signer).error();
  if (!*signer) return std::optional<Authorities>();
  auto next = certificate_of(next_file(folder));
  if (!next) return std::move(next).error();
  auto old = certificate_of(old_file(folder));
  if (!old) return std::move(old).error();
  Authorities all{std::move(**signer), std::move(*next), std::move(*old)};
  const std::string shown = folder + "/ca.pem";
  const auto there = files::read_file(shown, pki::certificates_bytes_max);
  if (there && *there && **there == all.trusted()) return std::optional(std::move(all));
  if (auto written = files::replace_file(shown, all.trusted(), {.mode = 0644, .durable = true}); !written)
    return std::move(written).error();
  return std::optional(std::move(all));
}

Result<> make_next_authority(const std::string& folder, Instant now) {
  auto all = read_authorities(folder);
  if (!all) return std::move(all).error();
  if (!*all) return invalid("there is no authority").remedy("`tutti controller init` makes it");
  if (!(*all)->next.empty()) return {};
  if (!(*all)->old.empty())
    return invalid("one authority follows another already")
        .remedy("`tutti controller ca` tells how far that is; `tutti controller ca rotate --finish` ends it");
  auto now_named = pki::read_certificate((*all)->signer.certificate);
  if (!now_named) return std::move(now_named).error();
  auto next = pki::make_authority(now_named->name.cluster, now);
  if (!next) return std::move(next).error();
  return write_new(next_file(folder), next->key + next->certificate);
}

Result<> use_next_authority(const std::string& folder) {
  if (!is_there(next_file(folder))) return {};
  if (is_there(signer_file(folder))) {
    if (auto moved = move(signer_file(folder), old_file(folder)); !moved) return moved;
  }
  return move(next_file(folder), signer_file(folder));
}

Result<> drop_old_authority(const std::string& folder) {
  if (::unlink(old_file(folder).c_str()) != 0 && errno != ENOENT)
    return failed_errno("cannot remove " + old_file(folder), errno);
  return files::sync_folder(folder);
}

}  // namespace tutti::controller
