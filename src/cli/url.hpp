// A server that people name by its URL. Main thread.
#pragma once

#include <string>

#include "base/result.hpp"
#include "net/http/client.hpp"

namespace tutti::cli {

bool is_url(const std::string& text);

// http://HOST[:PORT][/PATH] or https://…: what is asked stands below the path, and one that ends with /v1, as
// clients of OpenAI's API are told it, is meant without that. An https server's certificate is proved by
// `ca_file`, or by the authorities that this machine knows.
Result<net::Target> parse_url(const std::string& url, const std::string& ca_file);

}  // namespace tutti::cli
