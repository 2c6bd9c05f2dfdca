#include "serve/server/pages.hpp"

#include <algorithm>

namespace tutti::serve {

const Page* FoundPages::page(std::string_view method) const {
  const auto found = std::ranges::find(rows, method, &Page::method);
  return found == rows.end() ? nullptr : *found;
}

std::string FoundPages::methods() const {
  std::string text;
  for (const Page* row : rows) text += (text.empty() ? "" : ", ") + std::string(row->method);
  return text;
}

bool FoundPages::needs_key() const { return rows.empty() || std::ranges::any_of(rows, &Page::needs_key); }

FoundPages find_page(std::span<const Page> table, std::span<const std::string> parts) {
  FoundPages found;
  int literals_most = -1;
  for (const Page& row : table) {
    auto match = net::match_path(row.path, parts);
    if (!match || match->literals < literals_most) continue;
    if (match->literals > literals_most) found = {};
    literals_most = match->literals;
    found.rows.push_back(&row);
    found.arguments = std::move(match->arguments);
  }
  return found;
}

}  // namespace tutti::serve
