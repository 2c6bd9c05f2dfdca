#include "serve/chat/expressions.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

namespace tutti::serve::chat {
namespace {

std::string shown_word(const Word& word) {
  switch (word.kind) {
    case Word::Kind::text:
    case Word::Kind::output_begin:
    case Word::Kind::block_begin:
      return "text";
    case Word::Kind::output_end:
      return "'}}'";
    case Word::Kind::block_end:
      return "'%}'";
    case Word::Kind::end:
      return "the end of the template";
    case Word::Kind::name:
    case Word::Kind::string:
    case Word::Kind::whole:
    case Word::Kind::number:
    case Word::Kind::sign:
      break;
  }
  return "'" + word.text.substr(0, 40) + "'";
}

}  // namespace

void Words::wrong(std::string problem) {
  if (!problem_.empty()) return;
  problem_line_ = peek().line;
  problem_ = std::move(problem);
}

void Words::expect(Word::Kind kind, std::string_view what) {
  if (peek().kind != kind)
    return wrong(std::string(what) + " is expected, and there is " + shown_word(peek()));
  next();
}

void Words::expect_sign(std::string_view sign) {
  if (!take(sign)) wrong("'" + std::string(sign) + "' is expected, and there is " + shown_word(peek()));
}

std::string Words::expect_name(std::string_view what) {
  if (peek().kind == Word::Kind::name) return next().text;
  wrong(std::string(what) + " is expected, and there is " + shown_word(peek()));
  return "";
}

Expressions::Made Expressions::make(Expression::Kind kind) const {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = words_.peek().line;
  return made;
}

ExpressionPtr Expressions::done(Made made) {
  for (const auto& part : made->parts) made->depth = std::max(made->depth, part->depth + 1);
  for (const auto& [name, part] : made->named) made->depth = std::max(made->depth, part->depth + 1);
  if (made->depth > nesting_max)
    words_.wrong("an expression is nested more than " + std::to_string(nesting_max) + " deep");
  return made;
}

ExpressionPtr Expressions::literal(Value value) const {
  auto made = make(Expression::Kind::literal);
  made->value = std::move(value);
  return made;
}

// ---- from the loosest to the tightest

ExpressionPtr Expressions::read() {
  if (open_ == nesting_max) {
    words_.wrong("expressions are nested more than " + std::to_string(nesting_max) + " deep");
    return literal(nullptr);
  }
  ++open_;
  ExpressionPtr value = read_or();
  while (words_.take_name("if")) {
    auto choice = make(Expression::Kind::choice);
    choice->parts.push_back(std::move(value));
    choice->parts.push_back(read_or());
    choice->parts.push_back(words_.take_name("else") ? read() : literal(Value()));
    value = done(std::move(choice));
  }
  --open_;
  return value;
}

ExpressionPtr Expressions::read_with_commas() {
  ExpressionPtr first = read();
  if (!words_.sees(",")) return first;
  auto list = make(Expression::Kind::list);
  list->parts.push_back(std::move(first));
  while (words_.take(",")) {
    if (words_.peek().kind == Word::Kind::block_end || words_.peek().kind == Word::Kind::output_end) break;
    list->parts.push_back(read());
  }
  return done(std::move(list));
}

ExpressionPtr Expressions::read_logical(Read part, std::string_view name, Expression::Kind kind) {
  ExpressionPtr left = (this->*part)();
  while (words_.take_name(name)) {
    auto both = make(kind);
    both->parts.push_back(std::move(left));
    both->parts.push_back((this->*part)());
    left = done(std::move(both));
  }
  return left;
}

ExpressionPtr Expressions::read_or() {
  return read_logical(&Expressions::read_and, "or", Expression::Kind::logical_or);
}
ExpressionPtr Expressions::read_and() {
  return read_logical(&Expressions::read_not, "and", Expression::Kind::logical_and);
}

ExpressionPtr Expressions::read_not() {
  std::size_t times = 0;
  while (words_.sees_name("not") && !words_.sees_name("in", 1)) {
    words_.next();
    ++times;
  }
  ExpressionPtr value = read_compare();
  for (; times > 0; --times) {
    auto reversed = make(Expression::Kind::logical_not);
    reversed->parts.push_back(std::move(value));
    value = done(std::move(reversed));
  }
  return value;
}

// Takes it; empty if there is none.
std::string Expressions::compare_operator() {
  for (const std::string_view sign : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (words_.take(sign)) return std::string(sign);
  }
  if (words_.take_name("in")) return "in";
  if (words_.sees_name("not") && words_.sees_name("in", 1)) {
    words_.next();
    words_.next();
    return "not in";
  }
  return "";
}

ExpressionPtr Expressions::read_compare() {
  ExpressionPtr first = read_sum();
  std::string sign = compare_operator();
  if (sign.empty()) return first;
  auto compared = make(Expression::Kind::compare);
  compared->parts.push_back(std::move(first));
  for (; !sign.empty(); sign = compare_operator()) {
    compared->operators.push_back(std::move(sign));
    compared->parts.push_back(read_sum());
  }
  return done(std::move(compared));
}

ExpressionPtr Expressions::read_binary(Read part, std::initializer_list<std::string_view> signs) {
  ExpressionPtr left = (this->*part)();
  for (;;) {
    const auto sign =
        std::find_if(signs.begin(), signs.end(), [&](std::string_view each) { return words_.sees(each); });
    if (sign == signs.end()) return left;
    auto both = make(Expression::Kind::binary);
    both->text = words_.next().text;
    both->parts.push_back(std::move(left));
    both->parts.push_back((this->*part)());
    left = done(std::move(both));
  }
}

ExpressionPtr Expressions::read_sum() { return read_binary(&Expressions::read_concat, {"+", "-"}); }
ExpressionPtr Expressions::read_concat() { return read_binary(&Expressions::read_product, {"~"}); }
ExpressionPtr Expressions::read_product() {
  return read_binary(&Expressions::read_power, {"*", "/", "//", "%"});
}
ExpressionPtr Expressions::read_power() { return read_binary(&Expressions::read_unary, {"**"}); }

ExpressionPtr Expressions::read_unary() {
  std::string marks;
  while (words_.sees("-") || words_.sees("+")) marks += words_.next().text;
  ExpressionPtr value = read_postfix(read_primary());
  for (; !marks.empty(); marks.pop_back()) {
    auto turned = make(marks.back() == '-' ? Expression::Kind::negative : Expression::Kind::positive);
    turned->parts.push_back(std::move(value));
    value = done(std::move(turned));
  }
  return read_filters(std::move(value));
}

// ---- single values

ExpressionPtr Expressions::read_primary() {
  const Word& word = words_.peek();
  switch (word.kind) {
    case Word::Kind::name:
      return read_named_value();
    case Word::Kind::string: {
      std::string text;  // neighbours are one string
      while (words_.peek().kind == Word::Kind::string) text += words_.next().text;
      return literal(std::move(text));
    }
    case Word::Kind::whole: {
      std::int64_t value = 0;
      const std::string digits = words_.next().text;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return literal(value);
    }
    case Word::Kind::number: {
      double value = 0;
      const std::string digits = words_.next().text;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return literal(value);
    }
    case Word::Kind::sign:
      return read_brackets();
    case Word::Kind::text:
    case Word::Kind::output_begin:
    case Word::Kind::output_end:
    case Word::Kind::block_begin:
    case Word::Kind::block_end:
    case Word::Kind::end:
      break;
  }
  words_.wrong("a value is expected, and there is " + shown_word(word));
  return literal(nullptr);
}

ExpressionPtr Expressions::read_named_value() {
  const std::string name = words_.next().text;
  if (name == "true" || name == "True") return literal(true);
  if (name == "false" || name == "False") return literal(false);
  if (name == "none" || name == "None") return literal(nullptr);
  for (const std::string_view keyword : {"if", "else", "elif", "and", "or", "not", "in", "is", "for"}) {
    if (name == keyword) words_.wrong("a value is expected, and there is '" + name + "'");
  }
  auto made = make(Expression::Kind::name);
  made->text = name;
  return made;
}

ExpressionPtr Expressions::read_brackets() {
  if (words_.take("[")) return read_list();
  if (words_.take("{")) return read_map();
  if (!words_.take("(")) {
    words_.wrong("a value is expected, and there is " + shown_word(words_.peek()));
    return literal(nullptr);
  }
  if (words_.take(")")) return literal(List());
  ExpressionPtr first = read();
  if (words_.take(")")) return first;
  auto list = make(Expression::Kind::list);
  list->parts.push_back(std::move(first));
  while (words_.fine() && !words_.take(")")) {
    words_.expect_sign(",");
    if (!words_.sees(")")) list->parts.push_back(read());
  }
  return done(std::move(list));
}

ExpressionPtr Expressions::read_list() {
  auto list = make(Expression::Kind::list);
  while (words_.fine() && !words_.take("]")) {
    if (!list->parts.empty()) words_.expect_sign(",");
    if (!words_.sees("]")) list->parts.push_back(read());
  }
  return done(std::move(list));
}

ExpressionPtr Expressions::read_map() {
  auto map = make(Expression::Kind::map);
  while (words_.fine() && !words_.take("}")) {
    if (!map->parts.empty()) words_.expect_sign(",");
    if (words_.sees("}")) continue;
    map->parts.push_back(read());
    words_.expect_sign(":");
    map->parts.push_back(read());
  }
  return done(std::move(map));
}

// ---- what stands behind a value

ExpressionPtr Expressions::read_postfix(ExpressionPtr base) {
  while (words_.fine()) {
    if (words_.take(".")) {
      auto made = make(Expression::Kind::attribute);
      made->text =
          words_.peek().kind == Word::Kind::whole ? words_.next().text : words_.expect_name("an attribute");
      made->parts.push_back(std::move(base));
      base = done(std::move(made));
    } else if (words_.take("[")) {
      base = read_subscript(std::move(base));
    } else if (words_.take("(")) {
      auto made = make(Expression::Kind::call);
      made->parts.push_back(std::move(base));
      read_arguments(*made);
      base = done(std::move(made));
    } else {
      break;
    }
  }
  return base;
}

ExpressionPtr Expressions::read_subscript(ExpressionPtr base) {
  std::array<ExpressionPtr, 3> parts;
  std::size_t colons = 0;
  while (words_.fine() && !words_.take("]")) {
    if (words_.sees(":") && colons < 2) {
      words_.next();
      ++colons;
    } else if (parts[colons] == nullptr) {
      parts[colons] = read();
    } else {
      words_.expect_sign("]");
    }
  }
  auto made = make(colons == 0 ? Expression::Kind::item : Expression::Kind::slice);
  made->parts.push_back(std::move(base));
  if (colons == 0) {
    if (parts[0] == nullptr) words_.wrong("a value is expected inside of '[]'");
    made->parts.push_back(parts[0] == nullptr ? literal(nullptr) : std::move(parts[0]));
  } else {
    for (auto& part : parts) made->parts.push_back(part == nullptr ? literal(nullptr) : std::move(part));
  }
  return done(std::move(made));
}

// Stands behind the opening bracket.
void Expressions::read_arguments(Expression& call) {
  for (bool first = true; words_.fine() && !words_.take(")"); first = false) {
    if (!first) words_.expect_sign(",");
    if (words_.sees(")")) continue;
    if (words_.sees("*") || words_.sees("**")) words_.wrong("'*' before an argument is not known here");
    if (words_.peek().kind == Word::Kind::name && words_.sees("=", 1)) {
      std::string name = words_.next().text;
      words_.next();
      call.named.emplace_back(std::move(name), read());
    } else {
      if (!call.named.empty()) words_.wrong("an argument without a name stands behind one with a name");
      call.parts.push_back(read());
    }
  }
}

ExpressionPtr Expressions::read_filters(ExpressionPtr base) {
  while (words_.fine()) {
    if (words_.take("|")) {
      base = read_filter(std::move(base));
    } else if (words_.take_name("is")) {
      base = read_test(std::move(base));
    } else {
      break;
    }
  }
  return base;
}

ExpressionPtr Expressions::read_filter(ExpressionPtr base) {
  auto made = make(Expression::Kind::filter);
  made->text = words_.expect_name("a filter");
  made->parts.push_back(std::move(base));
  if (words_.take("(")) read_arguments(*made);
  return done(std::move(made));
}

ExpressionPtr Expressions::read_test(ExpressionPtr base) {
  const bool reversed = words_.take_name("not");
  auto made = make(Expression::Kind::test);
  made->text = words_.expect_name("a test");
  made->parts.push_back(std::move(base));
  const auto begins_value = [&] {
    const Word& word = words_.peek();
    if (word.kind == Word::Kind::name)
      return std::string_view(" else or and if is in not recursive ").find(" " + word.text + " ") ==
             std::string_view::npos;
    return word.kind == Word::Kind::string || word.kind == Word::Kind::whole ||
           word.kind == Word::Kind::number || words_.sees("[") || words_.sees("{");
  };
  if (words_.take("(")) {
    read_arguments(*made);
  } else if (begins_value()) {
    made->parts.push_back(read_postfix(read_primary()));
  }
  ExpressionPtr test = done(std::move(made));
  if (!reversed) return test;
  auto turned = make(Expression::Kind::logical_not);
  turned->parts.push_back(std::move(test));
  return done(std::move(turned));
}

}  // namespace tutti::serve::chat
