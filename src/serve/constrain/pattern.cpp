#include "serve/constrain/pattern.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "serve/constrain/machine.hpp"

namespace tutti::serve {
namespace {

// The letters that a string of JSON has behind a backslash alone, and what stands there for them.
constexpr std::array<std::pair<char32_t, std::uint8_t>, 7> json_escapes{
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\t', 't'}, {'\n', 'n'}, {'\f', 'f'}, {'\r', 'r'}}};

using Range = std::pair<char32_t, char32_t>;
using Ranges = std::vector<Range>;

constexpr char32_t letter_max = 0x10FFFF;
// To read a letter of a pattern, in edges that could be looked at meanwhile. A class that is repeated a
// thousand times is read as often.
constexpr std::uint64_t letter_work = 8;

Ranges sorted(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges joined;
  for (const Range& range : ranges) {
    if (!joined.empty() && range.first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, range.second);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

Ranges opposite(const Ranges& ranges) {
  Ranges others;
  char32_t next = 0;
  for (const Range& range : sorted(ranges)) {
    if (range.first > next) others.emplace_back(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= letter_max) others.emplace_back(next, letter_max);
  return others;
}

const Ranges digits{{'0', '9'}};
const Ranges word_letters{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges spaces{{'\t', '\r'}, {' ', ' '}};

char32_t decode(std::string_view letter) {
  const auto byte = [&](std::size_t nth) {
    return static_cast<char32_t>(static_cast<unsigned char>(letter[nth]));
  };
  switch (letter.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1FU) << 6U | (byte(1) & 0x3FU);
    case 3:
      return (byte(0) & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
    default:
      return (byte(0) & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U |
             (byte(3) & 0x3FU);
  }
}

// Reads a pattern and writes nodes as it goes. A part that is repeated is read again from its text.
class Reader {
 public:
  Reader(Grammar& grammar, std::string_view pattern, PatternStyle style, Effort& effort)
      : grammar_(grammar), text_(pattern), style_(style), effort_(effort) {}

  Result<NodeId> read(NodeId from) {
    const bool from_start = take('^');
    const bool to_end = text_.ends_with('$') && !is_escaped(text_.size() - 1);
    if (to_end) text_.remove_suffix(1);
    if (style_.finds && !from_start) from = anything(from);
    auto end = alternatives(from, 0);
    if (!end) return end;
    if (at_ < text_.size()) return broken("a ) without its (");
    return style_.finds && !to_end ? anything(*end) : *end;
  }

 private:
  Error broken(const std::string& what) const {
    return invalid("the pattern is refused at its byte " + std::to_string(at_) + ": " + what);
  }
  bool ends() const { return at_ >= text_.size(); }
  bool take(char wanted) {
    if (ends() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool is_escaped(std::size_t place) const {
    std::size_t backslashes = 0;
    while (backslashes < place && text_[place - 1 - backslashes] == '\\') ++backslashes;
    return backslashes % 2 == 1;
  }

  NodeId anything(NodeId from) {
    const NodeId loop = grammar_.add();
    grammar_.skip(from, loop);
    letters(loop, {{0, letter_max}}, loop);
    return loop;
  }

  void letters(NodeId from, const Ranges& ranges, NodeId to) {
    Ranges wanted = sorted(ranges);
    if (!style_.in_json_string) {
      for (const auto& [first, last] : wanted) grammar_.letters(from, first, last, to);
      return;
    }
    const Ranges plain{{' ', '!'}, {'#', '['}, {']', letter_max}};
    for (const auto& [first, last] : wanted) {
      for (const auto& [low, high] : plain) {
        if (std::max(first, low) <= std::min(last, high))
          grammar_.letters(from, std::max(first, low), std::min(last, high), to);
      }
    }
    std::optional<NodeId> escaped;
    for (const auto& [letter, written] : json_escapes) {
      const bool is_wanted = std::any_of(wanted.begin(), wanted.end(), [letter = letter](const auto& range) {
        return range.first <= letter && letter <= range.second;
      });
      if (!is_wanted) continue;
      if (!escaped) {
        escaped = grammar_.add();
        grammar_.edge(from, '\\', '\\', *escaped);
      }
      grammar_.edge(*escaped, written, written, to);
    }
  }

  // Leads to one node, whichever alternative is read.
  Result<NodeId> alternatives(NodeId from, int depth) {
    if (depth > pattern_depth_max)
      return broken("more than " + std::to_string(pattern_depth_max) + " groups inside one another");
    const NodeId end = grammar_.add();
    do {
      const NodeId begin = grammar_.add();
      grammar_.skip(from, begin);
      auto reached = sequence(begin, depth);
      if (!reached) return reached;
      grammar_.skip(*reached, end);
    } while (take('|'));
    return end;
  }

  Result<NodeId> sequence(NodeId from, int depth) {
    while (!ends() && text_[at_] != '|' && text_[at_] != ')') {
      auto reached = repeated(from, depth);
      if (!reached) return reached;
      from = *reached;
      if (grammar_.full()) return broken("it is too large");
    }
    return from;
  }

  struct Repeats {
    int least = 1;
    std::optional<int> most = 1;
  };

  Result<NodeId> repeated(NodeId from, int depth) {
    const std::size_t begin = at_;
    const NodeId first = grammar_.add();  // nothing of what stands before it leads back into it
    grammar_.skip(from, first);
    auto reached = item(first, depth);
    if (!reached) return reached;
    auto repeats = read_repeats();
    if (!repeats) return std::move(repeats).error();
    const std::size_t end = at_;
    const auto [least, most] = *repeats;
    if (least == 1 && most == 1) return *reached;

    const NodeId done = grammar_.add();
    if (least == 0) grammar_.skip(first, done);
    const auto again = [&](NodeId node) {
      at_ = begin;
      return item(node, depth);
    };
    NodeId node = *reached;
    NodeId last_begin = first;
    if (most == 0) return done;
    const int copies = most.value_or(std::max(least, 1));
    for (int copy = 1; copy < copies; ++copy) {
      if (copy >= least) grammar_.skip(node, done);
      if (grammar_.full()) return broken("it is too large");
      last_begin = grammar_.add();
      grammar_.skip(node, last_begin);
      reached = again(last_begin);
      if (!reached) return reached;
      node = *reached;
    }
    grammar_.skip(node, done);
    if (!most) grammar_.skip(node, last_begin);
    at_ = end;
    return done;
  }

  Result<int> number() {
    int value = 0;
    const std::size_t begin = at_;
    while (!ends() && text_[at_] >= '0' && text_[at_] <= '9' && value <= pattern_repeats_max)
      value = value * 10 + (text_[at_++] - '0');
    if (at_ == begin) return broken("a number is missing");
    if (value > pattern_repeats_max)
      return broken("more than " + std::to_string(pattern_repeats_max) + " repetitions");
    return value;
  }

  Result<Repeats> read_repeats() {
    Repeats repeats;
    if (take('*')) {
      repeats = {0, std::nullopt};
    } else if (take('+')) {
      repeats = {1, std::nullopt};
    } else if (take('?')) {
      repeats = {0, 1};
    } else if (take('{')) {
      auto least = number();
      if (!least) return std::move(least).error();
      repeats = {*least, *least};
      if (take(',')) {
        repeats.most = std::nullopt;
        if (!ends() && text_[at_] != '}') {
          auto most = number();
          if (!most) return std::move(most).error();
          repeats.most = *most;
        }
      }
      if (!take('}')) return broken("a } is missing");
      if (repeats.most && *repeats.most < repeats.least)
        return broken("the numbers stand the wrong way round");
    } else {
      return repeats;
    }
    take('?');
    if (!ends() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '{' || text_[at_] == '?'))
      return broken("two repetitions of one thing");
    return repeats;
  }

  Result<NodeId> item(NodeId from, int depth) {
    const char here = text_[at_];
    if (here == '(') return group(from, depth);
    Ranges ranges;
    if (here == '[') {
      auto read = letter_class();
      if (!read) return std::move(read).error();
      ranges = std::move(*read);
    } else if (here == '.') {
      ++at_;
      ranges = opposite({{'\n', '\n'}, {'\r', '\r'}});
    } else if (here == '*' || here == '+' || here == '?' || here == '{') {
      return broken("a repetition of nothing");
    } else if (here == '^' || here == '$') {
      return broken(std::string("a ") + here + " in the middle is not known here");
    } else {
      auto read = letter(false);
      if (!read) return std::move(read).error();
      ranges = std::move(*read);
    }
    const NodeId to = grammar_.add();
    letters(from, ranges, to);
    return to;
  }

  Result<NodeId> group(NodeId from, int depth) {
    ++at_;
    if (take('?')) {
      if (!take(':')) return broken("of the groups that begin with (? only (?: is known here");
    }
    auto end = alternatives(from, depth + 1);
    if (!end) return end;
    if (!take(')')) return broken("a ) is missing");
    return end;
  }

  Result<char32_t> hex(std::size_t count) {
    char32_t value = 0;
    for (std::size_t nth = 0; nth < count; ++nth, ++at_) {
      const char digit = ends() ? ' ' : text_[at_];
      if (digit >= '0' && digit <= '9') {
        value = value * 16 + static_cast<char32_t>(digit - '0');
      } else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f') {
        value = value * 16 + static_cast<char32_t>((digit | 0x20) - 'a' + 10);
      } else {
        return broken("a hexadecimal digit is missing");
      }
    }
    return value;
  }

  // One letter as it stands or behind a backslash, or a named class of them.
  Result<Ranges> letter(bool in_class) {
    if (!effort_.spend(letter_work)) return effort_.refusal();
    if (!take('\\')) {
      const std::size_t size = utf8_length(text_.substr(at_));
      if (size == 0) return broken("no valid UTF-8");
      const char32_t code = decode(text_.substr(at_, size));
      at_ += size;
      return Ranges{{code, code}};
    }
    if (ends()) return broken("a backslash at the end");
    const char here = text_[at_++];
    const auto one = [](char32_t code) { return Ranges{{code, code}}; };
    switch (here) {
      case 'd':
        return digits;
      case 'D':
        return opposite(digits);
      case 'w':
        return word_letters;
      case 'W':
        return opposite(word_letters);
      case 's':
        return spaces;
      case 'S':
        return opposite(spaces);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        return broken("borders of words are not known here");
      case 'x':
      case 'u': {
        auto code = hex(here == 'x' ? 2 : 4);
        if (!code) return std::move(code).error();
        return one(*code);
      }
      default:
        break;
    }
    if ((here >= '1' && here <= '9') || (here >= 'a' && here <= 'z') || (here >= 'A' && here <= 'Z'))
      return broken(std::string("\\") + here + " is not known here");
    if ((static_cast<unsigned char>(here) & 0x80U) != 0) return broken("a backslash before a letter");
    return one(static_cast<unsigned char>(here));
  }

  Result<Ranges> letter_class() {
    ++at_;
    const bool others = take('^');
    Ranges ranges;
    while (!take(']')) {
      if (ends()) return broken("a ] is missing");
      auto low = letter(true);
      if (!low) return low;
      const bool is_one = low->size() == 1 && low->front().first == low->front().second;
      const bool is_range = at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!is_range || !is_one) {
        ranges.insert(ranges.end(), low->begin(), low->end());
        continue;
      }
      ++at_;
      auto high = letter(true);
      if (!high) return high;
      if (high->size() != 1 || high->front().first != high->front().second ||
          high->front().first < low->front().first)
        return broken("a range whose ends stand the wrong way round");
      ranges.emplace_back(low->front().first, high->front().first);
    }
    return others ? opposite(ranges) : ranges;
  }

  Grammar& grammar_;
  std::string_view text_;
  PatternStyle style_;
  Effort& effort_;
  std::size_t at_ = 0;
};

// Finds all states of the pattern alone: where there are too many of them, no answer will ever be made to
// wait.
Result<> check_states(std::string_view pattern, PatternStyle style, Effort& effort) {
  auto alone = std::make_shared<Grammar>();
  const NodeId start = alone->add();
  auto end = Reader(*alone, pattern, style, effort).read(start);
  if (!end) return std::move(end).error();
  alone->prune(start, *end);
  Machine machine(alone, start);
  std::uint64_t spent = 0;
  for (std::size_t state = 0; state < machine.states(); ++state) {
    bool is_beyond = machine.states() > pattern_states_max;
    for (int byte = 0; byte < 256 && !is_beyond; ++byte) {
      is_beyond = machine.next(static_cast<Machine::State>(state), static_cast<std::uint8_t>(byte)) ==
                  Machine::beyond;
      if (!effort.spend(machine.work() - std::exchange(spent, machine.work()))) return effort.refusal();
    }
    if (is_beyond) {
      return invalid("the pattern has more than " + std::to_string(pattern_states_max) +
                     " states, or too many ways to be read")
          .remedy("repeat less, or let fewer alternatives begin alike");
    }
  }
  return {};
}

}  // namespace

Result<NodeId> add_pattern(Grammar& grammar, NodeId from, std::string_view pattern, PatternStyle style,
                           Effort& effort) {
  if (pattern.size() > pattern_bytes_max)
    return invalid("the pattern has more than " + std::to_string(pattern_bytes_max) + " bytes");
  const NodeId start = grammar.add();
  if (auto end = Reader(grammar, pattern, style, effort).read(start); !end || grammar.full()) {
    return end ? invalid("the pattern is too large") : std::move(end);
  } else {
    if (!grammar.prune(start, *end)) return invalid("no text is like the pattern");
    if (auto checked = check_states(pattern, style, effort); !checked) return std::move(checked).error();
    grammar.skip(from, start);
    return *end;
  }
}

}  // namespace tutti::serve
