// Signs for the cluster: the controller's own certificate and those of nodes; and knows which nodes have one
// that is good. On the network loop.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/rate.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "control/cluster/model.hpp"
#include "control/controller/authority_files.hpp"
#include "control/driver/delivery.hpp"
#include "control/wire/membership.hpp"
#include "net/http/server.hpp"
#include "net/pki/pki.hpp"

namespace tutti::controller {

// How far the clocks of a node and of the controller may be apart when it asks for a certificate.
constexpr Duration clocks_apart_max = pki::clock_slack;
// Whose certificate cannot be stored asks again within that.
constexpr Duration renewals_apart_max = 2min;
constexpr std::size_t unstored_max = 100;  // so many times at which nothing could be stored are remembered

// Of one node, so many at once after a rest, such as of steps to another authority, and so many in the life
// of a certificate on average.
constexpr double renewals_at_once_max = 100;
constexpr double renewals_in_life_max = 24;

struct RegistrarOptions {
  std::string folder;                  // of the controller
  std::vector<std::string> addresses;  // where it is reached, for its certificate
  Duration node_life = pki::node_life;
};

// Of the authority's ten years: so long before their end people are told of it.
constexpr Duration authority_end_told_before = 90 * 24h;

class Registrar {
 public:
  static Result<Registrar> open(Authorities authorities, RegistrarOptions options);

  // Where nodes find it: HOST:PORT.
  const std::string& address() const { return address_; }
  void set_address(std::string address) { address_ = std::move(address); }
  // Of the authority that signs, as people compare it.
  const std::string& fingerprint() const { return fingerprint_; }
  std::string trusted() const { return authorities_.trusted(); }
  const Authorities& authorities() const { return authorities_; }
  const std::string& folder() const { return options_.folder; }
  // Of the authority that signs.
  Instant ends_at() const;
  // For people, if that is soon; "" if it is not.
  std::string ends_soon(Instant now) const;

  // What the controller shows: a key and a certificate that are made anew each time.
  Result<net::ServerIdentity> server_identity(Instant now);
  // By which it is called, for its next certificate; true if they are others than before.
  bool set_addresses(std::vector<std::string> addresses);
  // Its own certificate should be made anew by then; what a clock that was set says counts as well.
  bool is_due(Instant now) const;
  // Others sign and are trusted from now on; `on_change` is told.
  Result<> use(Authorities authorities);
  std::function<void()> on_change;
  // Who is trusted, and which nodes another authority has to wait for.
  wire::AuthorityStanding standing(Instant now) const;
  bool is_behind(const cluster::NodeName& node) const;
  bool is_behind(const cluster::Member& member) const;

  // A certificate for this key, and what there is to store of it. It goes out when that is stored.
  struct Signed {
    std::string certificate;
    cluster::Member member;
  };
  Result<Signed> sign(const std::string& node, const pki::PublicKey& key, Instant now) const;

  // Of the next certificate of a node, what this one and what it trusts prove that it has stored.
  void note_stored(cluster::Member& member, const pki::Identity& shown,
                   const std::vector<std::string>& trusted) const;

  // What the store knows of the nodes. The time in which no controller was there does not count for their
  // certificates: nobody could renew one.
  void know(std::map<cluster::NodeName, cluster::Member> members, const cluster::Absence& absence) {
    members_ = std::move(members);
    absence_ = absence;
  }
  // Zero if the node may have another certificate now, or how long it is until then.
  Duration take_renewal(const cluster::NodeName& node, Instant steady) {
    return renewals_.take(node, steady);
  }
  // The node has joined with that key.
  bool has(const cluster::NodeName& node, const std::string& key) const;
  // Somebody wanted to renew one at that time, and nothing could be stored: that does not count either.
  void could_not_store(Instant now);
  void hear(const driver::Delivery& delivery);
  const std::map<cluster::NodeName, cluster::Member>& members() const { return members_; }
  // Why whoever has shown this may not speak for a node now.
  Result<> check(const pki::Identity& identity, Instant now) const;
  // Of what it is by the store alone: whatever its dates.
  Result<> check_known(const pki::Identity& identity) const;

 private:
  Registrar(Authorities authorities, RegistrarOptions options, std::string cluster, std::string fingerprint)
      : authorities_(std::move(authorities)),
        options_(std::move(options)),
        cluster_(std::move(cluster)),
        fingerprint_(std::move(fingerprint)),
        renewals_({.per_second = renewals_in_life_max / in_seconds(options_.node_life),
                   .burst = renewals_at_once_max},
                  cluster::members_max) {}

  // Of a certificate, with what does not count for it.
  Instant end_of(Instant signed_at, Instant until) const;

  Authorities authorities_;
  RegistrarOptions options_;
  std::string cluster_;  // as the authority has named it
  std::string fingerprint_;
  std::string address_;
  Instant shown_from_;  // its own certificate
  Instant renew_at_;
  std::map<cluster::NodeName, cluster::Member> members_;
  cluster::Absence absence_;
  std::vector<cluster::Absence> unstored_;
  RateLimits renewals_;  // by node
};

// Why a node with this date is refused: its certificates would be good at another time than its own.
Result<> check_clock(Instant of_node, Instant here);

}  // namespace tutti::controller
