// A chat template as a tree. Made by parse_template(), walked by the renderer; immutable, any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "serve/chat/value.hpp"

namespace tutti::serve::chat {

constexpr std::size_t template_bytes_max = std::size_t{1} << 20U;
constexpr std::size_t nesting_max = 200;  // of expressions and of blocks

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    literal,
    name,
    list,       // parts
    map,        // parts: key, value, key, value …
    attribute,  // parts[0].text
    item,       // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]]; a part that was left out is a literal none
    call,       // parts[0](parts[1] …, named)
    filter,     // parts[0] | text(parts[1] …, named)
    test,       // parts[0] is text(parts[1] …)
    negative,
    positive,
    logical_not,
    logical_and,
    logical_or,
    binary,   // parts[0] text parts[1]: arithmetic and ~
    compare,  // parts[0] operators[0] parts[1] operators[1] parts[2] …
    choice,   // parts[0] if parts[1] else parts[2]
  };

  Kind kind = Kind::literal;
  std::size_t line = 0;
  std::size_t depth = 1;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // null if there is no default
  Block body;
};

struct Statement {
  enum class Kind {
    text,
    output,     // expression
    branches,   // each with its condition, null for `else`
    loop,       // names, expression, filter, body, otherwise
    set,        // names or the attribute of one, expression
    set_block,  // names, body
    body,       // what stands in `generation` tags
    macro,
    loop_break,
    loop_continue,
  };

  Kind kind = Kind::text;
  std::size_t line = 0;
  std::string text;
  std::vector<std::string> names;
  std::string attribute;  // of names[0], which is a namespace
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block body;
  Block otherwise;
  Macro macro;
};

// As transformers reads them: the newline behind a tag and the blanks before it on its line are no text.
Result<Block> parse_template(std::string_view text);

}  // namespace tutti::serve::chat
