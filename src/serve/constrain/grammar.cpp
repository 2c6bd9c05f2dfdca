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

}  // namespace

NodeId Grammar::add() {
  if (nodes_.size() - word_nodes_ >= grammar_nodes_max) {
    full_ = true;
    return 0;
  }
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Grammar::add_of_word() {
  if (word_nodes_ >= grammar_word_nodes_max) {
    full_ = true;
    return 0;
  }
  ++word_nodes_;
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size() - 1);
}

std::size_t Grammar::bytes() const {
  std::size_t bytes = nodes_.capacity() * sizeof(Node);
  for (const Node& node : nodes_) {
    bytes += node.edges.capacity() * sizeof(Edge) + node.skips.capacity() * sizeof(NodeId) +
             node.calls.capacity() * sizeof(Call);
  }
  return bytes;
}

void Grammar::edge(NodeId from, std::uint8_t first, std::uint8_t last, NodeId to) {
  at_node(from).edges.push_back({first, last, to});
}
void Grammar::skip(NodeId from, NodeId to) { at_node(from).skips.push_back(to); }
void Grammar::call(NodeId from, NodeId part, NodeId after, bool deep) {
  at_node(from).calls.push_back({part, after, deep});
}
void Grammar::end_part(NodeId node) { at_node(node).ends_part = true; }

NodeId Grammar::text(NodeId from, std::string_view bytes) {
  for (const char byte : bytes) {
    const NodeId next = add();
    edge(from, static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), next);
    from = next;
  }
  return from;
}

bool Grammar::prune(NodeId start, NodeId end) {
  const auto size = static_cast<NodeId>(nodes_.size());
  const auto place = [&](NodeId node) { return static_cast<std::size_t>(node - start); };
  std::vector<std::vector<NodeId>> before(place(size));
  for (NodeId node = start; node < size; ++node) {
    for (const Edge& edge : at_node(node).edges) before[place(edge.to)].push_back(node);
    for (const NodeId to : at_node(node).skips) before[place(to)].push_back(node);
  }
  std::vector<bool> leads(before.size());
  leads[place(end)] = true;
  std::vector<NodeId> open{end};
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    for (const NodeId earlier : before[place(node)]) {
      if (leads[place(earlier)]) continue;
      leads[place(earlier)] = true;
      open.push_back(earlier);
    }
  }
  const auto astray = [&](NodeId to) { return !leads[place(to)]; };
  for (NodeId node = start; node < size; ++node) {
    std::erase_if(at_node(node).edges, [&](const Edge& edge) { return astray(edge.to); });
    std::erase_if(at_node(node).skips, astray);
  }
  return leads[place(start)];
}

// Cut into runs whose letters have the same number of bytes, each of which takes all values between that of
// the first and that of the last letter: such a run is one path of ranges.
void Grammar::letters(NodeId from, char32_t first, char32_t last, NodeId to) {
  constexpr char32_t half_first = 0xD800;  // halves of pairs are no letters
  constexpr char32_t half_last = 0xDFFF;
  last = std::min(last, char32_t{0x10FFFF});
  if (first >= half_first && first <= half_last) first = half_last + 1;
  if (last >= half_first && last <= half_last) last = half_first - 1;
  if (first > last || full_) return;
  const auto cut = [&](char32_t end) {
    letters(from, first, end, to);
    letters(from, end + 1, last, to);
  };
  for (const char32_t border :
       {char32_t{0x7F}, char32_t{0x7FF}, char32_t{half_first - 1}, char32_t{0xFFFF}}) {
    if (first <= border && last > border) return cut(border);
  }
  for (unsigned bits = 6; first >= 0x80 && bits <= 18; bits += 6) {
    const char32_t free = (char32_t{1} << bits) - 1;  // what the last bytes hold
    if ((first & ~free) == (last & ~free)) break;
    if ((first & free) != 0) return cut(first | free);
    if ((last & free) != free) return cut((last & ~free) - 1);
  }
  const Letter low = encode(first);
  const Letter high = encode(last);
  for (std::size_t nth = 0; nth < low.size; ++nth) {
    const NodeId next = nth + 1 == low.size ? to : add();
    edge(from, low.bytes[nth], high.bytes[nth], next);
    from = next;
  }
}

}  // namespace tutti::serve
