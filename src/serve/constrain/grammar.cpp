#include "serve/constrain/grammar.hpp"

#include <algorithm>
#include <array>

namespace tutti::serve {
namespace {

struct Letter {
  std::array<std::uint8_t, 4> bytes{};
  std::size_t size = 0;
};

Letter encode(char32_t code) {
  const auto low = [&](unsigned shift) { return static_cast<std::uint8_t>(0x80U | (code >> shift & 0x3FU)); };
  if (code < 0x80) return {{static_cast<std::uint8_t>(code)}, 1};
  if (code < 0x800) return {{static_cast<std::uint8_t>(0xC0U | code >> 6U), low(0)}, 2};
  if (code < 0x10000) return {{static_cast<std::uint8_t>(0xE0U | code >> 12U), low(6), low(0)}, 3};
  return {{static_cast<std::uint8_t>(0xF0U | code >> 18U), low(12), low(6), low(0)}, 4};
}

// The last letter of the group of 64 (4096, 262144) that this one belongs to.
char32_t group_end(char32_t code, unsigned bits) { return code | ((char32_t{1} << bits) - 1); }
bool begins_group(char32_t code, unsigned bits) { return (code & ((char32_t{1} << bits) - 1)) == 0; }

}  // namespace

NodeId Grammar::add() {
  if (nodes_.size() >= grammar_nodes_max) {
    full_ = true;
    return 0;
  }
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Grammar::edge(NodeId from, std::uint8_t first, std::uint8_t last, NodeId to) {
  at_node(from).edges.push_back({first, last, to});
}
void Grammar::skip(NodeId from, NodeId to) { at_node(from).skips.push_back(to); }
void Grammar::call(NodeId from, NodeId part, NodeId after) { at_node(from).calls.push_back({part, after}); }
void Grammar::end_part(NodeId node) { at_node(node).ends_part = true; }

NodeId Grammar::text(NodeId from, std::string_view bytes) {
  for (const char byte : bytes) {
    const NodeId next = add();
    edge(from, static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), next);
    from = next;
  }
  return from;
}

// Cut into runs whose letters have the same number of bytes, of which all but the first few are free: each run is then
// one path of ranges.
void Grammar::letters(NodeId from, char32_t first, char32_t last, NodeId to) {
  last = std::min(last, char32_t{0x10FFFF});
  while (first <= last) {
    if (first >= 0xD800 && first <= 0xDFFF) {  // halves of pairs are no letters
      first = 0xE000;
      continue;
    }
    char32_t end = last;
    for (const char32_t border : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xD7FF}, char32_t{0xFFFF}}) {
      if (first <= border) {
        end = std::min(end, border);
        break;
      }
    }
    // As many free bytes at the end as the run has whole groups of; else one group less.
    for (const unsigned bits : {6U, 12U, 18U}) {
      if (end < 0x80 || group_end(first, bits) > end) {
        if (end >= 0x80 && bits > 6) {
          const char32_t whole = ((end + 1) >> (bits - 6)) << (bits - 6);
          if (whole > first) end = std::min(end, whole - 1);
        }
        break;
      }
      if (!begins_group(first, bits)) {
        end = group_end(first, bits);
        break;
      }
    }
    const Letter low = encode(first);
    const Letter high = encode(end);
    NodeId node = from;
    for (std::size_t nth = 0; nth < low.size; ++nth) {
      const NodeId next = nth + 1 == low.size ? to : add();
      edge(node, low.bytes[nth], high.bytes[nth], next);
      node = next;
    }
    first = end + 1;
  }
}

}  // namespace tutti::serve
