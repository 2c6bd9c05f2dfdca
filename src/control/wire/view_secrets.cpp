#include "control/wire/convert.hpp"
#include "control/wire/json.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

using Of = cluster::SecretId::Of;

void fill_secret(const cluster::Secret& secret, proto::SecretView& view) {
  view.set_name(secret.id.name);
  if (secret.id.of == Of::queue) view.set_queue(secret.id.owner);
  if (secret.id.of == Of::person) view.set_person(secret.id.owner);
  view.set_bytes(secret.bytes);
  view.set_changed_at(format_instant(secret.changed_at));
  view.set_changed_by(secret.changed_by);
}

constexpr std::string_view of_queue_word = "queue ";
constexpr std::string_view of_person_word = "person ";

// Neither the name of a secret nor the first word has a space, whatever its owner is called.
std::string cursor_of(const cluster::SecretId& id) {
  return std::string(id.of == Of::queue ? of_queue_word : of_person_word) + id.owner + " " + id.name;
}

// Of any other text the first of all.
cluster::SecretId secret_behind(std::string_view text) {
  const std::size_t name = text.rfind(' ');
  const bool of_queue = text.starts_with(of_queue_word);
  const std::size_t owner = of_queue ? of_queue_word.size() : of_person_word.size();
  if (name == std::string_view::npos || name < owner) return {};
  return {of_queue ? Of::queue : Of::person, std::string(text.substr(owner, name - owner)),
          std::string(text.substr(name + 1))};
}

}  // namespace

std::string secrets_json(const cluster::State& state, const SecretQuery& query) {
  proto::SecretList list;
  if (!query.error.empty()) list.set_error(query.error);
  const cluster::Secret* last = nullptr;
  for (auto at = state.secrets.upper_bound(secret_behind(query.after)); at != state.secrets.end(); ++at) {
    if (at->first.of == Of::service) break;  // they come last, and nobody is told of them
    if (query.shows && !query.shows(at->first)) continue;
    if (static_cast<std::size_t>(list.secrets_size()) == query.limit) {
      list.set_next(cursor_of(last->id));
      break;
    }
    last = &at->second;
    fill_secret(*last, *list.add_secrets());
  }
  return print(list);
}

std::string secret_key_json(const std::string& key) {
  proto::SecretKeyView view;
  view.set_key(key);
  return print(view);
}

}  // namespace tutti::wire
