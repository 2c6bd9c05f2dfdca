// What a node shows that it is one, in its agent's folder: `node.key`, made here and for its owner alone,
// `node.pem`, the certificate, and `ca.pem`, the authorities that it trusts; and `controller`, where that is.
// node.pem is written last: where it is, all of them are. It all waits for disks and for the network.
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "net/http/client.hpp"
#include "net/pki/pki.hpp"

namespace tutti::agent {

struct JoinOptions {
  net::Target controller;
  std::string token;
  std::string authority;  // the fingerprint of the one that the controller has to show
  std::string name;       // that the node wants to have
  std::string folder;     // of the agent
};

// Makes this server a node, and returns the name that it has got. Nothing secret is sent before the
// controller has shown the authority that was named. Whoever has joined already joins again only where the
// controller does not take what it has any more, and keeps that until the new one is stored.
Result<std::string> join(const JoinOptions& options);

// Whose the folder's certificate is; nothing if it has none.
Result<std::optional<pki::Identity>> read_papers(const std::string& folder);
// The controller of the folder, spoken to with its certificate. `address` is "" for the one that it has
// joined.
Result<net::Target> target_with_papers(const std::string& folder, const std::string& address);

// When a new certificate is due: at two thirds of the life of this one, and not at the same moment as that of
// all others.
Instant renewal_due(const pki::Identity& identity);
struct Renewed {
  bool again = false;  // the controller wants to see that the new one has been stored
};
// Gets a new certificate for the same key with the one that it has, which stays if that fails. `invalid` is
// that the controller takes it no more.
Result<Renewed> renew_papers(const net::Target& controller, const std::string& folder);

}  // namespace tutti::agent
