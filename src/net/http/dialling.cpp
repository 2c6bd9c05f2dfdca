#include "net/http/dialling.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/error.hpp>

#include "net/http/trust.hpp"

namespace tutti::net {
namespace {

namespace beast = boost::beast;
using tcp = asio::ip::tcp;
constexpr auto as_values = asio::as_tuple(asio::use_awaitable);

bool all_here(const std::vector<tcp::endpoint>& endpoints) {
  return std::all_of(endpoints.begin(), endpoints.end(),
                     [](const auto& endpoint) { return endpoint.address().is_loopback(); });
}

// A number needs no directory, which would be asked in a thread of its own.
asio::awaitable<error_code> find(Wire& wire, const Target& target, std::vector<tcp::endpoint>& endpoints) {
  error_code is_name;
  const auto address = asio::ip::make_address(target.host, is_name);
  if (!is_name) {
    endpoints = {tcp::endpoint(address, target.port)};
    co_return error_code();
  }
  tcp::resolver resolver(wire.get_executor());
  const auto [unresolved, found] =
      co_await resolver.async_resolve(target.host, std::to_string(target.port), as_values);
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  co_return unresolved;
}

}  // namespace

const error_code not_secret = make_error_code(boost::system::errc::operation_not_permitted);

asio::awaitable<error_code> open_wire(Wire& wire, const Target& target, bool secret, Duration time_max) {
  wire.lowest().expires_after(time_max);
  std::vector<tcp::endpoint> endpoints;
  if (const auto unresolved = co_await find(wire, target, endpoints)) co_return unresolved;
  if (secret && !target.is_secure() && !all_here(endpoints)) co_return not_secret;
  const auto [failure, endpoint] = co_await wire.lowest().async_connect(endpoints, as_values);
  if (failure) co_return failure;
  error_code ignored;
  wire.lowest().socket().set_option(tcp::no_delay(true), ignored);
  co_return co_await wire.handshake(beast::role_type::client, target.host);
}

Error misunderstood(const Target& target, error_code failure) {
  Error error = failed(failure.message()).within(target.who + " " + target.text());
  const bool silent = failure == beast::error::timeout || failure == asio::error::timed_out;
  return silent ? error : std::move(error).remedy(tls_hint(target));
}

Error cannot_open(Wire& wire, const Target& target, error_code failure) {
  if (failure == not_secret) return in_the_clear().within(target.who + " " + target.text());
  if (const long verdict = wire.verdict(); verdict != 0)
    return untrusted(target, verdict).within(target.who + " " + target.text());
  const bool in_handshake = failure.category() == asio::error::get_ssl_category() ||
                            failure == asio::ssl::error::stream_truncated || failure == asio::error::eof;
  if (in_handshake) return misunderstood(target, failure);
  return failed(failure.message()).within(target.who + " " + target.text());
}

}  // namespace tutti::net
