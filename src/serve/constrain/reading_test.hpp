// Whole texts against a grammar, for the tests of this folder.
#pragma once

#include <memory>
#include <string_view>

#include "serve/constrain/machine.hpp"

namespace tutti::serve {

class Reading {
 public:
  // Add: from a grammar and a node to a result of where it leads.
  template <class Add>
  explicit Reading(const Add& add) {
    auto grammar = std::make_shared<Grammar>();
    const NodeId start = grammar->add();
    auto end = add(*grammar, start);
    if (!end) {
      refusal = end.error().text();
      remedy = end.error().remedy();
      return;
    }
    grammar->end_part(*end);
    machine = std::make_unique<Machine>(grammar, start);
  }

  bool takes(std::string_view text) {
    if (machine == nullptr) return false;
    Machine::State state = machine->start();
    for (const char byte : text) state = machine->next(state, static_cast<std::uint8_t>(byte));
    return state != Machine::dead && machine->accepts(state);
  }

  std::string refusal;
  std::string remedy;
  std::unique_ptr<Machine> machine;
};

}  // namespace tutti::serve
