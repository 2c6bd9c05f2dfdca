#include "serve/chat/render.hpp"

#include <utility>

namespace tutti::serve::chat {
namespace {

constexpr std::size_t steps_of_an_iteration = 8;  // its names are made anew

enum class Flow { on, loop_break, loop_continue };

class Renderer {
 public:
  Renderer(Variables variables, const Moment& now, std::stop_token abandoned)
      : work_(now, std::move(abandoned)) {
    scopes_.push_back(std::move(variables));
  }

  Result<std::string> run(const Block& block) {
    run_block(block);
    if (work_.fine()) return std::move(out_);
    return invalid(work_.problem()).within("line " + std::to_string(work_.line()));
  }

 private:
  // Counts what is inside of one another, so that no template can fill the stack.
  class Inside {
   public:
    explicit Inside(Renderer& renderer) : renderer_(renderer) {
      if (++renderer_.depth_ > render_depth_max)
        renderer_.work_.fail("it goes more than " + std::to_string(render_depth_max) + " deep");
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { --renderer_.depth_; }

   private:
    Renderer& renderer_;
  };

  // ---- variables

  // The innermost first; a macro sees its own and those of the whole template.
  Value look_up(std::string_view name) const {
    for (std::size_t at = scopes_.size(); at-- > 0;) {
      if (at > 0 && at < floor_) continue;
      const auto found = scopes_[at].find(name);
      if (found != scopes_[at].end()) return found->second;
    }
    return find_function(name);
  }
  void put(const std::string& name, Value value) { scopes_.back().insert_or_assign(name, std::move(value)); }

  // One name, or as many as the list has elements.
  void put_all(const std::vector<std::string>& names, const Value& value) {
    if (names.size() == 1) return put(names.front(), value);
    const List* const parts = value.list();
    if (parts == nullptr || parts->size() != names.size()) {
      work_.fail(std::string(value.kind()) + " cannot be taken apart into " + std::to_string(names.size()) +
                 " names");
      return;
    }
    for (std::size_t at = 0; at < names.size(); ++at) put(names[at], (*parts)[at]);
  }

  // ---- statements

  void write(std::string_view text) {
    if (!work_.step(1 + text.size() / bytes_a_step)) return;
    if (out_.size() + text.size() > output_bytes_max) {
      work_.fail("it writes more than " + std::to_string(output_bytes_max) + " bytes");
      return;
    }
    out_ += text;
  }

  Flow run_block(const Block& block) {
    const Inside inside(*this);
    for (const auto& statement : block) {
      if (!work_.step()) return Flow::on;
      const Flow flow = run_statement(*statement);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow run_statement(const Statement& statement) {
    work_.at_line(statement.line);
    switch (statement.kind) {
      case Statement::Kind::text:
        write(statement.text);
        break;
      case Statement::Kind::output:
        write_value(evaluate(*statement.expression));
        break;
      case Statement::Kind::branches:
        for (const auto& [condition, body] : statement.branches) {
          if (condition == nullptr || evaluate(*condition).truth()) return run_block(body);
          if (!work_.fine()) break;
        }
        break;
      case Statement::Kind::loop:
        run_loop(statement);
        break;
      case Statement::Kind::set:
        run_set(statement, evaluate(*statement.expression));
        break;
      case Statement::Kind::set_block:
        run_set(statement, captured(statement.body));
        break;
      case Statement::Kind::body:
        return run_block(statement.body);
      case Statement::Kind::macro:
        put(statement.macro.name, Value(&statement.macro));
        break;
      case Statement::Kind::loop_break:
        return Flow::loop_break;
      case Statement::Kind::loop_continue:
        return Flow::loop_continue;
    }
    return Flow::on;
  }

  void write_value(const Value& value) {
    if (const std::string* text = value.text()) return write(*text);
    if (work_.step_through(value)) write(to_text(value));
  }

  Value captured(const Block& body) {
    std::string outer = std::exchange(out_, {});
    run_block(body);
    return work_.made(std::exchange(out_, std::move(outer)));
  }

  void run_set(const Statement& statement, const Value& value) {
    if (!work_.fine()) return;
    if (statement.attribute.empty()) return put_all(statement.names, value);
    Variables* const space = look_up(statement.names.front()).space();
    if (space == nullptr) {
      work_.fail("'" + statement.names.front() + "' is no namespace, and its '" + statement.attribute +
                 "' is set");
    } else if (value.weight() >= unbounded) {
      work_.fail("a namespace cannot hold a namespace or a loop");
    } else {
      space->insert_or_assign(statement.attribute, value);
    }
  }

  void run_loop(const Statement& statement) {
    Value items = elements_of(work_, evaluate(*statement.expression));
    if (statement.filter != nullptr) items = kept(statement, items);
    if (!work_.fine()) return;
    if (!items.truth()) {
      run_block(statement.otherwise);
      return;
    }
    const auto shared = items.shared_list();
    for (std::size_t at = 0; at < shared->items.size() && work_.step(steps_of_an_iteration); ++at) {
      scopes_.emplace_back();
      put_all(statement.names, shared->items[at]);
      put("loop", Value(std::make_shared<const Loop>(Loop{shared, at})));
      const Flow flow = run_block(statement.body);
      scopes_.pop_back();
      if (flow == Flow::loop_break) break;
    }
  }

  // The elements of which the loop's own `if` is true.
  Value kept(const Statement& statement, const Value& items) {
    List chosen;
    for (std::size_t at = 0;
         items.list() != nullptr && at < items.list()->size() && work_.step(steps_of_an_iteration); ++at) {
      scopes_.emplace_back();
      put_all(statement.names, (*items.list())[at]);
      if (evaluate(*statement.filter).truth()) chosen.push_back((*items.list())[at]);
      scopes_.pop_back();
    }
    return work_.made(std::move(chosen));
  }

  // ---- expressions

  Value evaluate(const Expression& expression) {
    const Inside inside(*this);
    if (!work_.step()) return {};
    work_.at_line(expression.line);
    const auto part = [&](std::size_t at) { return evaluate(*expression.parts[at]); };
    switch (expression.kind) {
      case Expression::Kind::literal:
        return expression.value;
      case Expression::Kind::name:
        return look_up(expression.text);
      case Expression::Kind::list:
        return make_list(expression);
      case Expression::Kind::map:
        return make_map(expression);
      case Expression::Kind::attribute: {
        const Value object = part(0);
        return work_.fine() ? attribute_of(work_, object, expression.text) : Value();
      }
      case Expression::Kind::item: {
        const Value object = part(0);
        const Value key = part(1);
        return work_.fine() ? item_of(work_, object, key) : Value();
      }
      case Expression::Kind::slice: {
        const Value object = part(0);
        const Value from = part(1);
        const Value to = part(2);
        const Value step = part(3);
        return work_.fine() ? slice_of(work_, object, from, to, step) : Value();
      }
      case Expression::Kind::call:
        return call(expression);
      case Expression::Kind::filter: {
        const Value value = part(0);
        const Arguments arguments = arguments_of(expression);
        return work_.fine() ? apply_filter(work_, expression.text, value, arguments) : Value();
      }
      case Expression::Kind::test: {
        const Value value = part(0);
        const Arguments arguments = arguments_of(expression);
        return work_.fine() ? Value(apply_test(work_, expression.text, value, arguments)) : Value();
      }
      case Expression::Kind::negative: {
        const Value value = part(0);
        return work_.fine() ? calculate(work_, "-", 0, value) : Value();
      }
      case Expression::Kind::positive:
        return part(0);
      case Expression::Kind::logical_not:
        return !part(0).truth();
      case Expression::Kind::logical_and: {
        Value left = part(0);
        return left.truth() ? part(1) : left;
      }
      case Expression::Kind::logical_or: {
        Value left = part(0);
        return left.truth() ? left : part(1);
      }
      case Expression::Kind::binary: {
        const Value left = part(0);
        const Value right = part(1);
        return work_.fine() ? calculate_known(expression, left, right) : Value();
      }
      case Expression::Kind::compare:
        return compare_all(expression);
      case Expression::Kind::choice:
        return part(1).truth() ? part(0) : part(2);
    }
    return {};
  }

  // A name that nothing stands for is told by its name.
  Value calculate_known(const Expression& expression, const Value& left, const Value& right) {
    for (const Value* value : {&left, &right}) {
      if (value->is_undefined() && expression.text != "~")
        return work_.fail("'" + value->undefined()->name + "' is undefined");
    }
    return calculate(work_, expression.text, left, right);
  }

  Value compare_all(const Expression& expression) {
    Value left = evaluate(*expression.parts.front());
    for (std::size_t at = 0; at < expression.operators.size(); ++at) {
      Value right = evaluate(*expression.parts[at + 1]);
      if (!work_.fine() || !compares(work_, expression.operators[at], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Value make_list(const Expression& expression) {
    List list;
    for (const auto& each : expression.parts) list.push_back(evaluate(*each));
    return work_.made(std::move(list));
  }

  Value make_map(const Expression& expression) {
    Map map;
    for (std::size_t at = 0; at + 1 < expression.parts.size(); at += 2) {
      const Value key = evaluate(*expression.parts[at]);
      if (key.text() == nullptr) return work_.fail("the key of a map is " + std::string(key.kind()));
      Value value = evaluate(*expression.parts[at + 1]);
      if (!work_.step(1 + map.size() / bytes_a_step)) return {};
      std::erase_if(map, [&](const auto& item) { return item.first == *key.text(); });
      map.emplace_back(*key.text(), std::move(value));
    }
    return work_.made(std::move(map));
  }

  Arguments arguments_of(const Expression& expression) {
    Arguments arguments;
    for (std::size_t at = 1; at < expression.parts.size(); ++at)
      arguments.values.push_back(evaluate(*expression.parts[at]));
    for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, evaluate(*value));
    return arguments;
  }

  Value call(const Expression& expression) {
    const Expression& called = *expression.parts.front();
    if (called.kind == Expression::Kind::attribute) {
      const Value object = evaluate(*called.parts.front());
      const Arguments arguments = arguments_of(expression);
      if (!work_.fine()) return {};
      const Value own = object.space() == nullptr ? Value() : attribute_of(work_, object, called.text);
      if (own.macro() != nullptr) return call_macro(*own.macro(), arguments);
      return call_method(work_, object, called.text, arguments);
    }
    const Value value = evaluate(called);
    const Arguments arguments = arguments_of(expression);
    if (!work_.fine()) return {};
    if (value.macro() != nullptr) return call_macro(*value.macro(), arguments);
    if (value.function() != nullptr) return call_function(work_, value.function()->name, arguments);
    if (const Undefined* undefined = value.undefined())
      return work_.fail("there is no function '" + undefined->name + "' here");
    return work_.fail(std::string(value.kind()) + " cannot be called");
  }

  Value call_macro(const Macro& macro, const Arguments& arguments) {
    const Inside inside(*this);
    if (!work_.step()) return {};
    if (arguments.values.size() > macro.parameters.size())
      return work_.fail("the macro '" + macro.name + "' takes " + std::to_string(macro.parameters.size()) +
                        " arguments, and is given more");
    const std::size_t outer_floor = std::exchange(floor_, scopes_.size());
    scopes_.emplace_back();
    for (std::size_t at = 0; at < macro.parameters.size(); ++at) {
      const auto& [name, otherwise] = macro.parameters[at];
      Value given = arguments.get(at, name);
      if (given.is_undefined()) given = otherwise == nullptr ? Value(Undefined{name}) : evaluate(*otherwise);
      put(name, std::move(given));
    }
    Value text = captured(macro.body);
    scopes_.pop_back();
    floor_ = outer_floor;
    return text;
  }

  Work work_;
  std::vector<Variables> scopes_;  // the first is the template's own
  std::size_t floor_ = 0;  // of the macro that runs: scopes between the first and this are not its own
  std::size_t depth_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> render(const Block& block, Variables variables, const Moment& now,
                           std::stop_token abandoned) {
  return Renderer(std::move(variables), now, std::move(abandoned)).run(block);
}

}  // namespace tutti::serve::chat
