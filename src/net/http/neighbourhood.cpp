#include "net/http/neighbourhood.hpp"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

namespace tutti::net {

std::string neighbourhood(const std::string& address) {
  namespace ip = boost::asio::ip;
  boost::system::error_code failure;
  const ip::address parsed = ip::make_address(address, failure);
  if (failure || !parsed.is_v6()) return address;
  const ip::address_v6 whole = parsed.to_v6();
  if (whole.is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, whole).to_string();
  if (whole.is_link_local() || whole.is_loopback()) return address;
  auto bytes = whole.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return ip::address_v6(bytes).to_string() + "/64";
}

}  // namespace tutti::net
