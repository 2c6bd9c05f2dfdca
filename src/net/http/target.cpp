#include "net/http/target.hpp"

#include <boost/url/parse.hpp>

namespace tutti::net {

bool read_target(std::string_view target, Request& request) {
  const auto parsed = boost::urls::parse_origin_form({target.data(), target.size()});
  if (!parsed) return false;
  request.path = parsed->path();
  for (const auto part : parsed->segments()) request.parts.emplace_back(part);
  for (const auto parameter : parsed->params()) request.query[parameter.key] = parameter.value;
  return true;
}

}  // namespace tutti::net
