// How a connection to a server is opened, with TLS on it where that is asked for. For this module's own files
// only.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "net/http/client.hpp"
#include "net/http/wire.hpp"

namespace tutti::net {

constexpr Duration dial_time_max = 10s;

// The way is open to readers, and a secret is not sent on it.
extern const error_code not_secret;

// `secret`: what will be sent is for nobody on the way. Within the time until it can be spoken on.
asio::awaitable<error_code> open_wire(Wire& wire, const Target& target, bool secret, Duration time_max);

// Why there is no connection, for people.
Error cannot_open(Wire& wire, const Target& target, error_code failure);
// The other side does not speak as it is spoken to; whoever says nothing, or is not there, is not meant.
Error misunderstood(const Target& target, error_code failure);

}  // namespace tutti::net
