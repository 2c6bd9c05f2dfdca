#include "serve/load/adapters.hpp"

#include <algorithm>
#include <set>

namespace tutti::serve {
namespace {

constexpr std::size_t name_bytes_max = 128;

// What needs no escaping, in a URL or a shell.
bool is_plain(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') ||
         std::string_view("._-:/@+").find(letter) != std::string_view::npos;
}

Result<> check_name(std::string_view name) {
  if (!name.empty() && name.size() <= name_bytes_max && std::ranges::all_of(name, is_plain)) return {};
  return invalid("the name of an adapter has 1 to " + std::to_string(name_bytes_max) +
                 " letters, digits, dots, dashes or slashes");
}

}  // namespace

Result<NamedAdapter> parse_adapter(std::string_view text) {
  const std::size_t at = text.find('=');
  if (at == std::string_view::npos || at + 1 == text.size())
    return invalid("an adapter is NAME=FOLDER: what requests call it, and where PEFT has written it");
  NamedAdapter adapter{std::string(text.substr(0, at)), std::string(text.substr(at + 1))};
  if (auto fine = check_name(adapter.name); !fine) return std::move(fine).error();
  return adapter;
}

Result<> check_adapters(std::span<const NamedAdapter> adapters, std::string_view model) {
  if (adapters.size() > lora::adapters_max)
    return invalid("a model has at most " + std::to_string(lora::adapters_max) + " adapters");
  std::set<std::string_view> names{model};
  for (const NamedAdapter& adapter : adapters) {
    if (auto fine = check_name(adapter.name); !fine) return fine;
    if (names.insert(adapter.name).second) continue;
    return invalid("two of them, or one and the model, are called '" + adapter.name + "'")
        .within("adapters")
        .remedy("give each a name of its own; --name gives the model another one");
  }
  return {};
}

Result<std::vector<lora::Adapter>> open_adapters(std::span<const NamedAdapter> adapters,
                                                 const model::Shape& shape) {
  std::vector<lora::Adapter> opened;
  for (const NamedAdapter& adapter : adapters) {
    auto one = lora::Adapter::open(adapter.folder, shape);
    if (!one) return std::move(one).error().within("adapter '" + adapter.name + "'");
    opened.push_back(std::move(*one));
  }
  return opened;
}

}  // namespace tutti::serve
