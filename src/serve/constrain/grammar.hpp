// A language of bytes as a graph: nodes with edges for ranges of bytes, for nothing at all, and for whole
// parts that are called and come back. Patterns and schemas are turned into it, machine.hpp reads along.
// Values, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace tutti::serve {

using NodeId = std::int32_t;

inline constexpr std::size_t grammar_nodes_max = 100'000;
// Of words beside them: those grow with the text that they came in, and with nothing else.
inline constexpr std::size_t grammar_word_nodes_max = 250'000;

class Grammar {
 public:
  struct Edge {
    std::uint8_t first = 0;
    std::uint8_t last = 0;
    NodeId to = 0;
  };
  struct Call {
    NodeId part = 0;   // where it begins
    NodeId after = 0;  // where it goes on
    bool deep = false;
  };
  struct Node {
    std::vector<Edge> edges;
    std::vector<NodeId> skips;
    std::vector<Call> calls;
    bool ends_part = false;
  };

  // Past the bound all is one node, and full() says so: whoever builds asks at the end.
  NodeId add();
  NodeId add_of_word();
  bool full() const { return full_; }
  std::size_t size() const { return nodes_.size(); }
  std::size_t bytes() const;  // of memory, about
  const Node& operator[](NodeId node) const { return nodes_[static_cast<std::size_t>(node)]; }

  void edge(NodeId from, std::uint8_t first, std::uint8_t last, NodeId to);
  void skip(NodeId from, NodeId to);
  // A deep call may come back to itself, and is counted: so many of them are inside one another at most. What
  // is not deep is never in a circle.
  void call(NodeId from, NodeId part, NodeId after, bool deep);
  void end_part(NodeId node);
  // The bytes one after the other; where they lead.
  NodeId text(NodeId from, std::string_view bytes);
  // Takes out the ways that lead to nowhere, among the nodes from `start` on, which lead to each other alone
  // and call nothing: no reader is led astray. False if no way leads to the end. Takes as long as there are
  // such nodes, however many stand before them.
  bool prune(NodeId start, NodeId end);
  // A letter of UTF-8 between these two.
  void letters(NodeId from, char32_t first, char32_t last, NodeId to);

 private:
  Node& at_node(NodeId node) { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<Node> nodes_;
  std::size_t word_nodes_ = 0;  // of them
  bool full_ = false;
};

}  // namespace tutti::serve
