#include <algorithm>
#include <array>

#include "serve/chat/letters.hpp"
#include "serve/chat/work.hpp"

namespace tutti::serve::chat {
namespace {

using Method = Value (*)(Work&, const Value&, const Arguments&);

std::size_t times_of(const Value& value) {
  const bool given = value.whole() != nullptr && *value.whole() >= 0;
  return given ? static_cast<std::size_t>(*value.whole()) : std::string::npos;
}

// An empty text is before each letter, and at the end.
std::size_t count_of(std::string_view text, std::string_view what) {
  if (what.empty()) return count_letters(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = find_text(text, what); at != std::string_view::npos;
       at = find_text(text, what, at + what.size()))
    ++count;
  return count;
}

// ---- of texts

Value strip_sides(Work& work, const Value& text, const Arguments& arguments, Sides sides) {
  const Value letters = arguments.get(0, "chars");
  return work.made(std::string(letters.text() == nullptr ? strip(*text.text(), sides)
                                                         : strip(*text.text(), sides, *letters.text())));
}
Value text_strip(Work& work, const Value& text, const Arguments& arguments) {
  return strip_sides(work, text, arguments, {});
}
Value text_lstrip(Work& work, const Value& text, const Arguments& arguments) {
  return strip_sides(work, text, arguments, {.right = false});
}
Value text_rstrip(Work& work, const Value& text, const Arguments& arguments) {
  return strip_sides(work, text, arguments, {.left = false});
}

Value text_upper(Work& work, const Value& text, const Arguments&) {
  return work.made(to_upper(*text.text()));
}
Value text_lower(Work& work, const Value& text, const Arguments&) {
  return work.made(to_lower(*text.text()));
}
Value text_title(Work& work, const Value& text, const Arguments&) {
  return work.made(to_title(*text.text()));
}
Value text_capitalize(Work& work, const Value& text, const Arguments&) {
  return work.made(to_capitalized(*text.text()));
}

// A text, or any of a list of them.
template <class Fits>
Value fits_any(Work& work, const Value& what, Fits fits) {
  if (what.text() != nullptr) return fits(*what.text());
  if (what.list() == nullptr) return work.fail("a text is needed to look for");
  return std::any_of(what.list()->begin(), what.list()->end(),
                     [&](const Value& each) { return each.text() != nullptr && fits(*each.text()); });
}
Value text_startswith(Work& work, const Value& text, const Arguments& arguments) {
  return fits_any(work, arguments.get(0, "prefix"),
                  [&](const std::string& what) { return text.text()->starts_with(what); });
}
Value text_endswith(Work& work, const Value& text, const Arguments& arguments) {
  return fits_any(work, arguments.get(0, "suffix"),
                  [&](const std::string& what) { return text.text()->ends_with(what); });
}

Value text_removeprefix(Work& work, const Value& text, const Arguments& arguments) {
  const std::string what = to_text(arguments.get(0, "prefix"));
  return work.made(text.text()->starts_with(what) ? text.text()->substr(what.size()) : *text.text());
}
Value text_removesuffix(Work& work, const Value& text, const Arguments& arguments) {
  const std::string what = to_text(arguments.get(0, "suffix"));
  const bool there = !what.empty() && text.text()->ends_with(what);
  return work.made(there ? text.text()->substr(0, text.text()->size() - what.size()) : *text.text());
}

Value text_replace(Work& work, const Value& text, const Arguments& arguments) {
  const Value what = arguments.get(0, "old");
  const Value by = arguments.get(1, "new");
  if (what.text() == nullptr || by.text() == nullptr) return work.fail("'replace' needs two texts");
  // Counted before it is made: a hostile template would fill the memory.
  const std::size_t places = count_of(*text.text(), *what.text()) + 1;
  if (!work.fits(by.text()->size() > value_bytes_max / places ? value_bytes_max + 1 : 0)) return {};
  return work.made(replace_all(*text.text(), *what.text(), *by.text(), times_of(arguments.get(2, "count"))));
}

// Without a separator: the words between white space.
Value split_words(Work& work, std::string_view text, std::size_t most) {
  List parts;
  for (text = strip(text, {.right = false}); !text.empty() && work.step();) {
    if (parts.size() == most) {
      parts.emplace_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && !begins_with_space(text.substr(end, 4)))
      end += first_letter_bytes(text.substr(end));
    if (!work.fits_elements(parts.size() + 1)) return {};
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), {.right = false});
  }
  return work.made(std::move(parts));
}

Value text_split(Work& work, const Value& text, const Arguments& arguments) {
  const Value separator = arguments.get(0, "sep");
  std::size_t most = times_of(arguments.get(1, "maxsplit"));
  if (separator.text() == nullptr) return split_words(work, *text.text(), most);
  const std::string& by = *separator.text();
  if (by.empty()) return work.fail("'split' by an empty text");
  List parts;
  std::size_t done = 0;
  for (; most > 0 && work.step(); --most) {
    const std::size_t found = find_text(*text.text(), by, done);
    if (found == std::string::npos) break;
    if (!work.fits_elements(parts.size() + 1)) return {};
    parts.emplace_back(text.text()->substr(done, found - done));
    done = found + by.size();
  }
  parts.emplace_back(text.text()->substr(done));
  return work.made(std::move(parts));
}

Value text_rsplit(Work& work, const Value& text, const Arguments& arguments) {
  const Value separator = arguments.get(0, "sep");
  std::size_t most = times_of(arguments.get(1, "maxsplit"));
  if (separator.text() == nullptr) return work.fail("'rsplit' needs a separator here");
  const std::string& by = *separator.text();
  if (by.empty()) return work.fail("'rsplit' by an empty text");
  // From the end, as places of the text that is turned round.
  const std::string_view whole = *text.text();
  const std::string turned(whole.rbegin(), whole.rend());
  const std::string turned_by(by.rbegin(), by.rend());
  List parts;
  std::size_t done = 0;
  for (; most > 0 && work.step(); --most) {
    const std::size_t found = find_text(turned, turned_by, done);
    if (found == std::string_view::npos) break;
    if (!work.fits_elements(parts.size() + 1)) return {};
    parts.emplace_back(whole.substr(whole.size() - found, found - done));
    done = found + by.size();
  }
  parts.emplace_back(whole.substr(0, whole.size() - done));
  std::reverse(parts.begin(), parts.end());
  return work.made(std::move(parts));
}

Value text_splitlines(Work& work, const Value& text, const Arguments&) {
  List lines;
  std::string_view rest = *text.text();
  while (!rest.empty() && work.step() && work.fits_elements(lines.size() + 1)) {
    const std::size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    lines.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end);
    if (!rest.empty()) rest.remove_prefix(rest.starts_with("\r\n") ? 2 : 1);
  }
  return work.made(std::move(lines));
}

Value text_join(Work& work, const Value& text, const Arguments& arguments) {
  return apply_filter(work, "join", arguments.get(0, "iterable"), {{text}, {}});
}

// Places are counted in letters.
Value text_find(Work& work, const Value& text, const Arguments& arguments) {
  const std::size_t found = find_text(*text.text(), to_text(arguments.get(0, "sub")));
  if (found == std::string::npos || !work.fine()) return -1;
  return count_letters(std::string_view(*text.text()).substr(0, found));
}
Value text_rfind(Work& work, const Value& text, const Arguments& arguments) {
  const std::size_t found = find_last_text(*text.text(), to_text(arguments.get(0, "sub")));
  if (found == std::string::npos || !work.fine()) return -1;
  return count_letters(std::string_view(*text.text()).substr(0, found));
}

Value text_count(Work&, const Value& text, const Arguments& arguments) {
  return count_of(*text.text(), to_text(arguments.get(0, "sub")));
}

template <class Is>
Value all_bytes(const Value& text, Is is) {
  return !text.text()->empty() && std::all_of(text.text()->begin(), text.text()->end(), is);
}
Value text_isdigit(Work&, const Value& text, const Arguments&) {
  return all_bytes(text, [](char letter) { return letter >= '0' && letter <= '9'; });
}
Value text_isspace(Work&, const Value& text, const Arguments&) {
  return !text.text()->empty() && strip(*text.text(), {}).empty();
}
Value text_isupper(Work&, const Value& text, const Arguments&) {
  return to_upper(*text.text()) == *text.text() && to_lower(*text.text()) != *text.text();
}
Value text_islower(Work&, const Value& text, const Arguments&) {
  return to_lower(*text.text()) == *text.text() && to_upper(*text.text()) != *text.text();
}

constexpr std::array<std::pair<std::string_view, Method>, 23> text_methods{{
    {"strip", text_strip},
    {"lstrip", text_lstrip},
    {"rstrip", text_rstrip},
    {"upper", text_upper},
    {"lower", text_lower},
    {"title", text_title},
    {"capitalize", text_capitalize},
    {"startswith", text_startswith},
    {"endswith", text_endswith},
    {"removeprefix", text_removeprefix},
    {"removesuffix", text_removesuffix},
    {"replace", text_replace},
    {"split", text_split},
    {"rsplit", text_rsplit},
    {"splitlines", text_splitlines},
    {"join", text_join},
    {"find", text_find},
    {"rfind", text_rfind},
    {"count", text_count},
    {"isdigit", text_isdigit},
    {"isspace", text_isspace},
    {"isupper", text_isupper},
    {"islower", text_islower},
}};

// ---- of maps and lists

Value map_items(Work& work, const Value& map, const Arguments&) {
  List items;
  for (const auto& [key, value] : *map.map()) items.emplace_back(List{key, value});
  return work.made(std::move(items));
}
Value map_keys(Work& work, const Value& map, const Arguments&) { return elements_of(work, map); }
Value map_values(Work& work, const Value& map, const Arguments&) {
  List values;
  for (const auto& [key, value] : *map.map()) values.push_back(value);
  return work.made(std::move(values));
}
Value map_get(Work&, const Value& map, const Arguments& arguments) {
  const Value key = arguments.get(0, "key");
  const Value* const found = key.text() == nullptr ? nullptr : map.find(*key.text());
  if (found != nullptr) return *found;
  return arguments.has(1, "default") ? arguments.get(1, "default") : Value(nullptr);
}
constexpr std::array<std::pair<std::string_view, Method>, 4> map_methods{
    {{"items", map_items}, {"keys", map_keys}, {"values", map_values}, {"get", map_get}}};

Value list_count(Work&, const Value& list, const Arguments& arguments) {
  const Value what = arguments.get(0, "value");
  return std::count_if(list.list()->begin(), list.list()->end(),
                       [&](const Value& each) { return equal(each, what); });
}
Value list_index(Work& work, const Value& list, const Arguments& arguments) {
  const Value what = arguments.get(0, "value");
  const auto found = std::find_if(list.list()->begin(), list.list()->end(),
                                  [&](const Value& each) { return equal(each, what); });
  if (found == list.list()->end()) return work.fail("'index' of what is not in the list");
  return found - list.list()->begin();
}
constexpr std::array<std::pair<std::string_view, Method>, 2> list_methods{
    {{"count", list_count}, {"index", list_index}}};

template <class Methods>
const Method* find_method(const Methods& methods, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const auto& each) { return each.first == name; });
  return found == methods.end() ? nullptr : &found->second;
}

}  // namespace

Value call_method(Work& work, const Value& object, std::string_view name, const Arguments& arguments) {
  if (!work.step_through(object) || !step_through(work, arguments)) return {};
  const Method* method = object.text() != nullptr   ? find_method(text_methods, name)
                         : object.map() != nullptr  ? find_method(map_methods, name)
                         : object.list() != nullptr ? find_method(list_methods, name)
                                                    : nullptr;
  if (method != nullptr) return (*method)(work, object, arguments);
  if (object.loop() != nullptr && name == "cycle" && !arguments.values.empty())
    return arguments.values[object.loop()->at % arguments.values.size()];
  if (object.is_undefined()) return attribute_of(work, object, name);
  return work.fail(std::string(object.kind()) + " has no method '" + std::string(name) + "' here");
}

}  // namespace tutti::serve::chat
