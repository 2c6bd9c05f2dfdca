#include "node/agent/papers.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/files/files.hpp"
#include "base/log/log.hpp"
#include "base/text.hpp"
#include "control/wire/membership.hpp"
#include "control/wire/replies.hpp"
#include "node/agent/folder_lock.hpp"
#include "node/agent/membership.hpp"

namespace tutti::agent {
namespace {

constexpr std::size_t key_bytes_max = 64 << 10;
constexpr std::size_t address_bytes_max = 512;
constexpr Duration join_time_max = 30s;
constexpr int forbidden = 403;
// Of the life of a certificate: what is left for the renewal to be tried again, and how far apart those of
// many nodes are.
constexpr int due_thirds = 2;
constexpr int spread_part = 20;

std::string key_file(const std::string& folder) { return folder + "/node.key"; }
// Of whoever joins again, until that has worked.
std::string next_key_file(const std::string& folder) { return folder + "/node.key.next"; }
std::string certificate_file(const std::string& folder) { return folder + "/node.pem"; }
std::string authorities_file(const std::string& folder) { return folder + "/ca.pem"; }
std::string named_authority_file(const std::string& folder) { return folder + "/ca.pem.named"; }
std::string controller_file(const std::string& folder) { return folder + "/controller"; }

bool is_there(const std::string& file) { return ::access(file.c_str(), F_OK) == 0; }

Result<> write(const std::string& file, const std::string& text, mode_t mode) {
  return files::replace_file(file, text, {.mode = mode, .durable = true});
}

Result<> write_controller(const JoinOptions& options) {
  return write(controller_file(options.folder), options.controller.text() + "\n", 0644);
}

// Made once: a node that has not heard the answer asks again with the same. Whoever joins again does so with
// another key, and keeps the one that it has until then.
Result<std::string> key_of(const std::string& folder) {
  const bool is_next = is_there(certificate_file(folder)) || is_there(next_key_file(folder));
  const std::string file = is_next ? next_key_file(folder) : key_file(folder);
  auto there = files::read_file(file, key_bytes_max);
  if (!there) return std::move(there).error();
  if (*there && pki::make_request(**there)) return std::move(**there);
  auto key = pki::make_key();
  if (!key) return std::move(key).error();
  if (auto written = write(file, *key, 0600); !written) return std::move(written).error();
  return key;
}

// The one that was named, of those that the controller shows.
Result<std::string> authority_of(const JoinOptions& options) {
  net::Target controller = options.controller;
  controller.wants_cluster = true;
  auto shown = net::shown_certificates(controller);
  if (!shown) return std::move(shown).error();
  std::string others;
  for (const std::string& certificate : *shown) {
    auto fingerprint = pki::fingerprint(certificate);
    auto identity = pki::read_certificate(certificate);
    if (fingerprint && *fingerprint == options.authority) return certificate;
    if (fingerprint && identity && identity->name.role == pki::Role::authority) others = *fingerprint;
  }
  const std::string who = "controller " + options.controller.text();
  if (others.empty())
    return invalid("it shows no authority of a cluster; nothing was sent to it")
        .within(who)
        .remedy(
            "`tutti nodes token` tells where the controller is; one whose folder has no authority takes "
            "agents with the join token");
  return invalid("its authority is " + others + ", and not " + options.authority + "; nothing was sent to it")
      .within(who)
      .remedy("somebody else may answer there: compare --ca with what `tutti nodes token` prints now");
}

Error answer_error(const net::Target& controller, const net::Response& response) {
  return wire::decode_error(response.status, response.body).within("controller " + controller.text());
}

// It is for our key, good now, and of one of the authorities that we are to trust from now on.
Result<pki::Identity> check_reply(const wire::JoinReply& reply, const std::string& request) {
  auto identity = pki::read_certificate(reply.certificate);
  if (!identity) return std::move(identity).error();
  auto key = pki::read_request(request);
  if (!key) return std::move(key).error();
  if (identity->key_id != key->id || identity->name.node != reply.name)
    return failed("the certificate that it gives is not the one that was asked for");
  if (auto in_time = pki::check_time(*identity, now_on_the_wall()); !in_time)
    return std::move(in_time).error().within("by the clock of this node");
  if (auto is_signed = pki::check_signer(reply.certificate, reply.authorities); !is_signed)
    return std::move(is_signed).error().within("what it gives does not belong together");
  return std::move(*identity);
}

Result<> store(const std::string& folder, const wire::JoinReply& reply) {
  if (auto written = write(authorities_file(folder), reply.authorities, 0644); !written) return written;
  return write(certificate_file(folder), reply.certificate, 0644);
}

// From now on the controller takes the key that has joined, and no other.
Result<> store_joined(const JoinOptions& options, const wire::JoinReply& reply) {
  const std::string& folder = options.folder;
  if (is_there(next_key_file(folder))) {
    const std::string certificate = certificate_file(folder);
    if (::unlink(certificate.c_str()) != 0 && errno != ENOENT)
      return failed_errno("cannot remove " + certificate, errno);
    if (std::rename(next_key_file(folder).c_str(), key_file(folder).c_str()) != 0)
      return failed_errno("cannot rename " + next_key_file(folder), errno);
    if (auto synced = files::sync_folder(folder); !synced) return synced;
  }
  if (auto written = write_controller(options); !written) return written;
  return store(folder, reply);
}

// Fingerprints of the authorities that are on the disk; none where that cannot be read.
std::vector<std::string> trusted_in(const std::string& folder) {
  std::vector<std::string> fingerprints;
  const auto text = files::read_file(authorities_file(folder), pki::certificates_bytes_max);
  const auto all = text && *text ? pki::split_certificates(**text) : std::vector<std::string>();
  if (!all) return fingerprints;
  for (const std::string& certificate : *all) {
    auto fingerprint = pki::fingerprint(certificate);
    if (fingerprint) fingerprints.push_back(std::move(*fingerprint));
  }
  return fingerprints;
}

// Of the cluster that is meant.
bool trusts(const std::string& folder, const std::string& authority) {
  const auto trusted = trusted_in(folder);
  return std::find(trusted.begin(), trusted.end(), authority) != trusted.end();
}

// Whoever has joined before is taken at its word by the controller, or needs the token. What it has stays
// until it has something better: a clock that is wrong, a disk that cannot be read, or an authority that has
// another one followed since are no reason to be nobody.
Result<bool> is_still_good(const JoinOptions& options) {
  const auto papers = read_papers(options.folder);
  if (papers && !*papers) return false;
  if (!papers) {
    log::warning("this server has joined before and does so again: {}", papers.error().text());
    return false;
  }
  auto target = target_with_papers(options.folder, options.controller.text());
  if (!target) return std::move(target).error();
  const bool is_named = trusts(options.folder, options.authority);
  const auto renewed = renew_papers(*target, options.folder);
  const bool is_refused = !renewed && renewed.error().code() == ErrorCode::invalid;
  // Where nobody answers, or nobody can judge now, the agent goes on trying.
  const bool waits = !renewed && !is_refused && is_named && now_on_the_wall() < (*papers)->until;
  if (!renewed && !waits) {
    log::warning("this server has joined before and does so again: {}", renewed.error().text());
    return false;
  }
  if (!is_named)
    log::warning(
        "the authority of the cluster is another one than that of --ca since this server has joined; its "
        "certificate is good all the same");
  if (auto written = write_controller(options); !written) return std::move(written).error();
  return true;
}

}  // namespace

Result<std::optional<pki::Identity>> read_papers(const std::string& folder) {
  const auto text = files::read_file(certificate_file(folder), pki::certificates_bytes_max);
  if (!text) return text.error();
  if (!*text) return std::optional<pki::Identity>();
  auto identity = pki::read_certificate(**text);
  if (!identity)
    return std::move(identity)
        .error()
        .within(certificate_file(folder))
        .remedy("`tutti agent join` with a new token (`tutti nodes token`) gets another one");
  return std::optional(std::move(*identity));
}

Result<net::Target> target_with_papers(const std::string& folder, const std::string& address) {
  std::string where = address;
  if (where.empty()) {
    auto known = files::read_existing_file(controller_file(folder), address_bytes_max);
    if (!known) return std::move(known).error();
    where = trim(*known);
  }
  auto target = net::parse_target(where);
  if (!target)
    return std::move(target).error().within(address.empty() ? controller_file(folder) : "--controller");
  target->ca_file = authorities_file(folder);
  target->certificate_file = certificate_file(folder);
  target->key_file = key_file(folder);
  target->wants_cluster = true;
  return target;
}

Result<std::string> join(const JoinOptions& options) {
  const auto lock = FolderLock::take(options.folder);
  if (!lock) return lock.error();
  const auto is_good = is_still_good(options);
  if (!is_good) return is_good.error();
  if (*is_good) {
    auto papers = read_papers(options.folder);
    if (!papers) return std::move(papers).error();
    return (*papers)->name.node;
  }
  auto identity = folder_identity(options.folder);
  if (!identity) return std::move(identity).error();
  auto key = key_of(options.folder);
  if (!key) return std::move(key).error();
  auto request = pki::make_request(*key);
  if (!request) return std::move(request).error();
  auto authority = authority_of(options);
  if (!authority) return std::move(authority).error();
  const std::string named = named_authority_file(options.folder);
  if (auto written = write(named, *authority, 0644); !written) return std::move(written).error();
  net::Target controller = options.controller;
  controller.ca_file = named;
  controller.wants_cluster = true;
  const wire::JoinRequest asked{.token = options.token,
                                .name = options.name,
                                .identity = *identity,
                                .request = *request,
                                .date = now_on_the_wall()};
  auto answer =
      net::Client(controller, "")
          .request("POST", "/api/v1/join", wire::encode(asked), join_time_max, net::small_answer_bytes_max);
  ::unlink(named.c_str());
  if (!answer) return std::move(answer).error();
  if (answer->status >= 400) return answer_error(controller, *answer);
  auto reply = wire::decode_join_reply(answer->body);
  if (!reply) return std::move(reply).error();
  if (auto sound = check_reply(*reply, *request); !sound)
    return std::move(sound).error().within("controller " + controller.text());
  if (auto stored = store_joined(options, *reply); !stored)
    return std::move(stored).error().remedy(
        "make room and join again with the same token: it has let this server in already");
  return reply->name;
}

Instant renewal_due(const pki::Identity& identity) {
  const Duration life = identity.until - identity.signed_at;
  // By its serial, which is random.
  unsigned part = 0;
  std::from_chars(identity.serial.data(),
                  identity.serial.data() + std::min<std::size_t>(identity.serial.size(), 2), part, 16);
  return identity.signed_at + life * due_thirds / 3 + life / spread_part * part / 256;
}

Result<Renewed> renew_papers(const net::Target& controller, const std::string& folder) {
  auto key = files::read_existing_file(key_file(folder), key_bytes_max);
  if (!key) return std::move(key).error();
  auto request = pki::make_request(*key);
  if (!request) return std::move(request).error();
  wire::JoinRequest asked{.request = *request, .date = now_on_the_wall()};
  asked.trusted = trusted_in(folder);
  auto answer = net::Client(controller, "")
                    .request("POST", "/api/v1/join/renew", wire::encode_renewal(asked), join_time_max,
                             net::small_answer_bytes_max);
  // It has heard no word of ours: what signed our certificate is trusted there no more.
  if (!answer && answer.error().code() == ErrorCode::forbidden)
    return std::move(answer).error().as(ErrorCode::invalid);
  if (!answer) return std::move(answer).error();
  if (answer->status >= 400) {
    Error why = answer_error(controller, *answer);
    // That says nothing of the certificate: a clock may be wrong.
    return answer->status == forbidden ? why : failed(why.text()).remedy(why.remedy());
  }
  auto reply = wire::decode_join_reply(answer->body);
  if (!reply) return std::move(reply).error();
  if (auto sound = check_reply(*reply, *request); !sound)
    return std::move(sound).error().within("controller " + controller.text());
  if (auto stored = store(folder, *reply); !stored) return std::move(stored).error();
  return Renewed{reply->again};
}

}  // namespace tutti::agent
