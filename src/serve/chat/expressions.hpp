// The expressions of a chat template: words to trees. One thread at a time.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/chat/lexer.hpp"
#include "serve/chat/syntax.hpp"

namespace tutti::serve::chat {

// Words that are read one by one. Behind a mistake, the first of which is told, there is only the end.
class Words {
 public:
  explicit Words(std::vector<Word> words) : words_(std::move(words)) {}

  const Word& peek(std::size_t ahead = 0) const {
    return fine() && at_ + ahead < words_.size() ? words_[at_ + ahead] : words_.back();
  }
  const Word& next() {
    const Word& word = peek();
    if (at_ + 1 < words_.size()) ++at_;
    return word;
  }
  bool sees(std::string_view sign, std::size_t ahead = 0) const {
    return peek(ahead).kind == Word::Kind::sign && peek(ahead).text == sign;
  }
  bool sees_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).kind == Word::Kind::name && peek(ahead).text == name;
  }
  bool take(std::string_view sign) { return sees(sign) && (next(), true); }
  bool take_name(std::string_view name) { return sees_name(name) && (next(), true); }

  void expect(Word::Kind kind, std::string_view what);
  void expect_sign(std::string_view sign);
  std::string expect_name(std::string_view what);

  bool fine() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  std::size_t problem_line() const { return problem_line_; }
  void wrong(std::string problem);

 private:
  std::vector<Word> words_;
  std::size_t at_ = 0;
  std::string problem_;
  std::size_t problem_line_ = 0;
};

// Every function gives a tree, behind a mistake one without meaning.
class Expressions {
 public:
  explicit Expressions(Words& words) : words_(words) {}

  ExpressionPtr read();
  // `a, b` is a list.
  ExpressionPtr read_with_commas();
  // What stands behind `in` of a loop: an `if` behind it belongs to the loop.
  ExpressionPtr read_without_choice() { return read_or(); }

 private:
  using Made = std::unique_ptr<Expression>;
  using Read = ExpressionPtr (Expressions::*)();

  Made make(Expression::Kind kind) const;
  ExpressionPtr done(Made made);
  ExpressionPtr literal(Value value) const;
  ExpressionPtr read_binary(Read part, std::initializer_list<std::string_view> signs);
  ExpressionPtr read_logical(Read part, std::string_view name, Expression::Kind kind);

  ExpressionPtr read_or();
  ExpressionPtr read_and();
  ExpressionPtr read_not();
  ExpressionPtr read_compare();
  ExpressionPtr read_sum();
  ExpressionPtr read_concat();
  ExpressionPtr read_product();
  ExpressionPtr read_power();
  ExpressionPtr read_unary();
  ExpressionPtr read_primary();
  ExpressionPtr read_named_value();
  ExpressionPtr read_brackets();
  ExpressionPtr read_list();
  ExpressionPtr read_map();
  ExpressionPtr read_postfix(ExpressionPtr base);
  ExpressionPtr read_filters(ExpressionPtr base);
  ExpressionPtr read_filter(ExpressionPtr base);
  ExpressionPtr read_test(ExpressionPtr base);
  ExpressionPtr read_subscript(ExpressionPtr base);
  void read_arguments(Expression& call);
  std::string compare_operator();

  Words& words_;
  std::size_t open_ = 0;  // expressions inside of one another
};

}  // namespace tutti::serve::chat
