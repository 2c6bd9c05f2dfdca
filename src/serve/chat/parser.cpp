#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "serve/chat/expressions.hpp"
#include "serve/chat/lexer.hpp"
#include "serve/chat/syntax.hpp"

namespace tutti::serve::chat {
namespace {

// Tags up to the ones that end a block.
class Parser {
 public:
  explicit Parser(std::vector<Word> words) : words_(std::move(words)), expressions_(words_) {}

  Result<Block> run() {
    Block block;
    read_block(block, {}, 0);
    if (!words_.problem().empty())
      return invalid(words_.problem()).within("line " + std::to_string(words_.problem_line()));
    return block;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Stands behind the name of the tag that ended it, which is one of `ends`; without any, at the end of the
  // text.
  std::string read_block(Block& block, Names ends, std::size_t depth) {
    if (depth > nesting_max)
      words_.wrong("blocks are nested more than " + std::to_string(nesting_max) + " deep");
    while (words_.fine()) {
      const Word& word = words_.peek();
      if (word.kind == Word::Kind::end) {
        if (ends.size() > 0)
          words_.wrong("a block has no end: '" + std::string(*(ends.end() - 1)) + "' is missing");
        break;
      }
      if (word.kind == Word::Kind::block_begin) {
        words_.next();
        std::string tag = words_.expect_name("a tag");
        if (std::find(ends.begin(), ends.end(), tag) != ends.end()) return tag;
        read_tag(block, tag, depth);
        continue;
      }
      auto statement = make(word.kind == Word::Kind::text ? Statement::Kind::text : Statement::Kind::output);
      if (word.kind == Word::Kind::text) {
        statement->text = words_.next().text;
      } else {
        words_.next();
        statement->expression = expressions_.read_with_commas();
        words_.expect(Word::Kind::output_end, "'}}'");
      }
      block.push_back(std::move(statement));
    }
    return "";
  }

  std::unique_ptr<Statement> make(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = words_.peek().line;
    return statement;
  }
  void end_tag() { words_.expect(Word::Kind::block_end, "'%}'"); }

  void read_tag(Block& block, const std::string& tag, std::size_t depth) {
    if (tag == "if") return block.push_back(read_if(depth));
    if (tag == "for") return block.push_back(read_for(depth));
    if (tag == "set") return block.push_back(read_set(depth));
    if (tag == "macro") return block.push_back(read_macro(depth));
    if (tag == "generation") {
      auto statement = make(Statement::Kind::body);
      end_tag();
      read_block(statement->body, {"endgeneration"}, depth + 1);
      end_tag();
      return block.push_back(std::move(statement));
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) words_.wrong("'" + tag + "' stands outside of a loop");
      block.push_back(make(tag == "break" ? Statement::Kind::loop_break : Statement::Kind::loop_continue));
      return end_tag();
    }
    words_.wrong("the tag '" + tag.substr(0, 40) + "' is not known here");
  }

  std::unique_ptr<Statement> read_if(std::size_t depth) {
    auto statement = make(Statement::Kind::branches);
    std::string tag = "if";
    while (words_.fine() && tag != "endif") {
      auto& [condition, body] = statement->branches.emplace_back();
      if (tag != "else") condition = expressions_.read();
      end_tag();
      tag = tag == "else" ? read_block(body, {"endif"}, depth + 1)
                          : read_block(body, {"elif", "else", "endif"}, depth + 1);
    }
    end_tag();
    return statement;
  }

  void read_targets(std::vector<std::string>& names) {
    const bool in_brackets = words_.take("(");
    do {
      names.push_back(words_.expect_name("a name"));
    } while (words_.fine() && words_.take(","));
    if (in_brackets) words_.expect_sign(")");
  }

  std::unique_ptr<Statement> read_for(std::size_t depth) {
    auto statement = make(Statement::Kind::loop);
    read_targets(statement->names);
    if (!words_.take_name("in")) words_.wrong("'in' is expected behind the names of a loop");
    statement->expression = expressions_.read_without_choice();
    if (words_.take_name("if")) statement->filter = expressions_.read();
    if (words_.take_name("recursive")) words_.wrong("'recursive' loops are not known here");
    end_tag();
    ++loops_;
    const std::string tag = read_block(statement->body, {"else", "endfor"}, depth + 1);
    --loops_;
    if (tag == "else") {
      end_tag();
      read_block(statement->otherwise, {"endfor"}, depth + 1);
    }
    end_tag();
    return statement;
  }

  std::unique_ptr<Statement> read_set(std::size_t depth) {
    auto statement = make(Statement::Kind::set);
    read_targets(statement->names);
    if (statement->names.size() == 1 && words_.take("."))
      statement->attribute = words_.expect_name("an attribute");
    if (words_.take("=")) {
      statement->expression = expressions_.read_with_commas();
      end_tag();
      return statement;
    }
    if (words_.sees("|")) words_.wrong("a 'set' block with a filter is not known here");
    if (statement->names.size() > 1) words_.wrong("'=' is expected");
    statement->kind = Statement::Kind::set_block;
    end_tag();
    read_block(statement->body, {"endset"}, depth + 1);
    end_tag();
    return statement;
  }

  std::unique_ptr<Statement> read_macro(std::size_t depth) {
    auto statement = make(Statement::Kind::macro);
    Macro& macro = statement->macro;
    macro.name = words_.expect_name("the name of a macro");
    words_.expect_sign("(");
    while (words_.fine() && !words_.take(")")) {
      if (!macro.parameters.empty()) words_.expect_sign(",");
      std::string name = words_.expect_name("a parameter");
      macro.parameters.emplace_back(std::move(name), words_.take("=") ? expressions_.read() : nullptr);
    }
    end_tag();
    const std::size_t outer_loops = std::exchange(loops_, 0);
    read_block(macro.body, {"endmacro"}, depth + 1);
    loops_ = outer_loops;
    if (words_.peek().kind == Word::Kind::name) words_.next();  // its name may be repeated
    end_tag();
    return statement;
  }

  Words words_;
  Expressions expressions_;
  std::size_t loops_ = 0;
};

}  // namespace

Result<Block> parse_template(std::string_view text) {
  if (text.size() > template_bytes_max)
    return invalid("the template has more than " + std::to_string(template_bytes_max) + " bytes");
  auto words = to_words(text);
  if (!words) return std::move(words).error();
  return Parser(std::move(*words)).run();
}

}  // namespace tutti::serve::chat
