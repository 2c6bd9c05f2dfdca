// Many texts as one part of a grammar: those that begin alike share their beginnings, and those that end
// alike their ends, so that reading goes one way however many there are. Pure.
#pragma once

#include <string>
#include <vector>

#include "serve/constrain/grammar.hpp"

namespace tutti::serve {

// From a node to where one of the words has been read.
NodeId add_words(Grammar& grammar, NodeId from, std::vector<std::string> words);

}  // namespace tutti::serve
