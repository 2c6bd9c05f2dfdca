// Whom an address counts for, where addresses share something. Pure.
#pragma once

#include <string>

namespace tutti::net {

// An address of IPv4 by itself, also where it is written as one of IPv6. Of IPv6 the network of 64 bits,
// which is the least that anybody is given: one machine has as many addresses in it as it likes, and would
// have as many shares. Those of one link alone have no network and count each; what is no address counts as
// it is.
std::string neighbourhood(const std::string& address);

}  // namespace tutti::net
