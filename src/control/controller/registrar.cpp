#include "control/controller/registrar.hpp"

#include <algorithm>
#include <utility>

namespace tutti::controller {
namespace {

const char* const join_again =
    "`tutti agent join` on that server with a new token (`tutti nodes token`) makes it a node again";

}  // namespace

Result<Registrar> Registrar::open(Authorities authorities, RegistrarOptions options) {
  auto named = pki::read_certificate(authorities.signer.certificate);
  if (!named) return std::move(named).error();
  auto fingerprint = pki::fingerprint(authorities.signer.certificate);
  if (!fingerprint) return std::move(fingerprint).error();
  return Registrar(std::move(authorities), std::move(options), named->name.cluster, std::move(*fingerprint));
}

Result<> Registrar::use(Authorities authorities) {
  auto fingerprint = pki::fingerprint(authorities.signer.certificate);
  if (!fingerprint) return std::move(fingerprint).error();
  authorities_ = std::move(authorities);
  fingerprint_ = std::move(*fingerprint);
  if (on_change) on_change();
  return {};
}

Instant Registrar::ends_at() const {
  const auto named = pki::read_certificate(authorities_.signer.certificate);
  return named ? named->until : Instant();
}

std::string Registrar::ends_soon(Instant now) const {
  const Instant end = ends_at();
  if (now < end - authority_end_told_before) return "";
  return "the authority of the cluster ends at " + format_instant(end) +
         ", and all certificates with it: `tutti controller ca rotate` lets another one follow before that";
}

// Those that do not know the one that comes, or that have a certificate of the one that was.
wire::AuthorityStanding Registrar::standing(Instant now) const {
  const auto name = [](const std::string& certificate) {
    return certificate.empty() ? "" : pki::fingerprint(certificate).value_or("");
  };
  wire::AuthorityStanding standing{
      fingerprint_, ends_at(), name(authorities_.next), name(authorities_.old), {}};
  for (const auto& [node, member] : members_) {
    if (member.revoked || now >= end_of(member.signed_at, member.until)) continue;
    if (is_behind(member)) standing.behind.push_back(node);
  }
  return standing;
}

bool Registrar::is_behind(const cluster::NodeName& node) const {
  const auto member = members_.find(node);
  return member != members_.end() && is_behind(member->second);
}

bool Registrar::is_behind(const cluster::Member& member) const {
  const bool waits_for_next = !authorities_.next.empty() && !member.knows_next;
  return waits_for_next || (!authorities_.old.empty() && member.held != fingerprint_);
}

// An answer may not have reached the disk of the node.
void Registrar::note_stored(cluster::Member& member, const pki::Identity& shown,
                            const std::vector<std::string>& trusted) const {
  if (trusted.empty()) return;  // of an earlier version, which is believed to have stored it
  const auto next =
      authorities_.next.empty() ? std::string() : pki::fingerprint(authorities_.next).value_or("");
  member.knows_next = !next.empty() && std::find(trusted.begin(), trusted.end(), next) != trusted.end();
  const auto known = members_.find(member.name);
  if (known == members_.end()) return;
  const bool is_newest = known->second.serial == shown.serial;
  member.held = is_newest ? known->second.authority : known->second.held;
}

// Who is away for longer is forgotten.
Instant Registrar::end_of(Instant signed_at, Instant until) const {
  Duration added{};
  const auto add = [&](const cluster::Absence& absence) {
    const Duration away = std::clamp<Duration>(absence.to - absence.from, 0s, cluster::members_kept);
    if (absence.to > signed_at && until + added > absence.from) added += away;
  };
  add(absence_);
  for (const cluster::Absence& unstored : unstored_) add(unstored);
  return until + std::min<Duration>(added, cluster::members_kept);
}

bool Registrar::has(const cluster::NodeName& node, const std::string& key) const {
  const auto member = members_.find(node);
  return member != members_.end() && member->second.key == key;
}

void Registrar::could_not_store(Instant now) {
  const bool goes_on = !unstored_.empty() && now >= unstored_.back().from && now <= unstored_.back().to;
  if (!goes_on) unstored_.push_back({now, now});
  if (unstored_.size() > unstored_max) unstored_.erase(unstored_.begin());
  unstored_.back().to = now + renewals_apart_max;
}

// It shows the authorities too, so that a server that joins can compare the one that it was told of. Whoever
// starts with a clock that is wrong is found all the same by those whose clocks are right: its key is of this
// start alone, and what is stored tells that the date is not before that.
Result<net::ServerIdentity> Registrar::server_identity(Instant now) {
  auto key = pki::make_key();
  if (!key) return std::move(key).error();
  auto request = pki::make_request(*key);
  if (!request) return std::move(request).error();
  auto holder = pki::read_request(*request);
  if (!holder) return std::move(holder).error();
  const Instant dated = std::max(now, absence_.from);
  auto certificate = pki::sign(
      authorities_.signer, *holder,
      {.name = {.cluster = cluster_, .role = pki::Role::controller}, .addresses = options_.addresses},
      {.now = dated, .life = pki::controller_life, .from_authority = true});
  if (!certificate) return std::move(certificate).error();
  shown_from_ = now;
  renew_at_ = dated + pki::controller_life * 2 / 3;
  return net::ServerIdentity{*certificate + authorities_.signer.certificate, std::move(*key), trusted()};
}

bool Registrar::set_addresses(std::vector<std::string> addresses) {
  if (addresses == options_.addresses) return false;
  options_.addresses = std::move(addresses);
  return true;
}

bool Registrar::is_due(Instant now) const {
  return now >= renew_at_ || now < shown_from_ - pki::clock_slack / 2;
}

Result<Registrar::Signed> Registrar::sign(const std::string& node, const pki::PublicKey& key,
                                          Instant now) const {
  auto certificate = pki::sign(authorities_.signer, key, {.name = {.cluster = cluster_, .node = node}},
                               {.now = now, .life = options_.node_life});
  if (!certificate) return std::move(certificate).error();
  auto identity = pki::read_certificate(*certificate);
  if (!identity) return std::move(identity).error();
  cluster::Member member;
  member.name = node;
  member.key = key.id;
  member.serial = identity->serial;
  member.authority = fingerprint_;
  member.signed_at = identity->signed_at;
  member.until = identity->until;
  member.knows_next = !authorities_.next.empty();
  member.held = fingerprint_;
  return Signed{std::move(*certificate), std::move(member)};
}

void Registrar::hear(const driver::Delivery& delivery) {
  if (delivery.all_members) members_.clear();
  for (const auto& [name, member] : delivery.members) {
    if (member) {
      members_.insert_or_assign(name, *member);
    } else {
      members_.erase(name);
    }
  }
}

Result<> Registrar::check_known(const pki::Identity& identity) const {
  if (identity.name.cluster != cluster_ || identity.name.role != pki::Role::node)
    return invalid("the certificate is none of a node of this cluster").remedy(join_again);
  const std::string& node = identity.name.node;
  const auto member = members_.find(node);
  if (member == members_.end())
    return invalid(
               "node '" + node +
               "' is not known here: it was removed, or the controller's store is older than its certificate")
        .remedy(join_again);
  if (member->second.revoked)
    return invalid("the certificate of node '" + node + "' was revoked").remedy(join_again);
  if (member->second.key != identity.key_id)
    return invalid("another server has become node '" + node + "' since").remedy(join_again);
  return {};
}

Result<> Registrar::check(const pki::Identity& identity, Instant now) const {
  if (auto known = check_known(identity); !known) return known;
  pki::Identity counted = identity;
  counted.until = end_of(identity.signed_at, identity.until);
  // It has signed it: where that is still to come the clock is wrong.
  if (auto in_time = pki::check_time(counted, std::max(now, identity.signed_at)); !in_time)
    return std::move(in_time).error().within("by the clock of the controller");
  return {};
}

Result<> check_clock(Instant of_node, Instant here) {
  const Duration apart = of_node - here;
  if (std::chrono::abs(apart) <= clocks_apart_max) return {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::abs(apart));
  return invalid("the clock of the node is " + format_duration(seconds) +
                 (apart > Duration::zero() ? " ahead of" : " behind") +
                 " that of the controller: there it is " + format_instant(of_node) + ", and here " +
                 format_instant(here))
      .remedy("set the clock that is wrong; certificates are good from one date to another");
}

}  // namespace tutti::controller
