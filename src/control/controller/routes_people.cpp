// People: who is known, with which roles, and their tokens.
#include <algorithm>
#include <array>

#include "base/clock/clock.hpp"
#include "base/text.hpp"
#include "control/controller/call.hpp"
#include "control/controller/tokens.hpp"
#include "control/people/may.hpp"
#include "control/wire/requests.hpp"

namespace tutti::controller {
namespace {

// A name that is too long stays so, and is refused as such.
std::string name_argument(const Call& call) {
  return valid_utf8(call.argument("name").substr(0, people::name_bytes_max + 1));
}

void show_caller(const Call& call) {
  call.show([](const auto&, const auto&, const auto& caller) { return wire::whoami_json(caller); });
}

constexpr std::int64_t page_max = 1000;

// A page of those of whom `shows` says so to the caller.
void show_page(const Call& call, auto shows, auto json) {
  const auto limit = call.number("limit", page_max);
  if (!limit || *limit < 1) return call.refuse(invalid("limit is a whole number above 0"));
  wire::PeopleQuery query{.after = call.text("after"),
                          .limit = static_cast<std::size_t>(std::min(*limit, page_max))};
  call.show([query, shows, json](const auto& state, const auto&, const people::Caller& caller) {
    wire::PeopleQuery seen = query;
    seen.shows = [&](const people::Person& person) { return shows(caller, person); };
    return json(state, seen);
  });
}

// Those whom he may change, and himself.
void list_people(const Call& call) {
  show_page(
      call,
      [](const people::Caller& caller, const people::Person& person) {
        return person.name == caller.name || people::may_change_person(caller, person);
      },
      wire::people_json);
}

void set_person(const Call& call) {
  auto person = wire::decode_person(name_argument(call), call.body());
  if (!person) return call.refuse(person.error());
  call.change(std::move(*person));
}

void block(const Call& call, bool blocked) {
  call.change(cluster::SetPerson{.name = name_argument(call), .kind = {}, .grants = {}, .blocked = blocked},
              404);
}
void block_person(const Call& call) { block(call, true); }
void unblock_person(const Call& call) { block(call, false); }

void remove_person(const Call& call) { call.change(cluster::RemovePerson{name_argument(call)}); }

void list_tokens(const Call& call) {
  show_page(call, people::may_revoke_tokens_of, [](const auto& state, const wire::PeopleQuery& query) {
    return wire::tokens_json(state, now_on_the_wall(), query);
  });
}

// The secret is in the answer and nowhere else.
void make_token(const Call& call) {
  auto wish = wire::decode_token(call.body());
  if (!wish) return call.refuse(wish.error());
  people::Token token = std::move(wish->token);
  const people::Caller& caller = *call.by().caller;
  if (token.person.empty() && caller.root)
    return call.refuse(invalid("whose token is it to be?")
                           .remedy("the cluster's own token stands for nobody: name a user, `--user NAME`"));
  if (token.person.empty()) token.person = caller.name;
  if (wish->life != Duration::zero()) token.expires_at = now_on_the_wall() + wish->life;
  people::bound_by(caller, token);
  auto made = new_token(std::move(token));
  if (!made) return call.refuse(made.error());
  std::string answer = wire::new_token_json(made->token, made->text);
  call.change(cluster::IssueToken{std::move(made->token)}, std::move(answer));
}

void revoke_token(const Call& call) {
  call.change(cluster::RevokeToken{valid_utf8(call.argument("id").substr(0, people::name_bytes_max))}, 404);
}

}  // namespace

std::span<const Route> people_routes() {
  static const std::array table{
      Route{.method = "GET",
            .path = "/whoami",
            .need = Need::person,
            .answer = {"WhoamiView"},
            .summary = "Whose token this is, and what it may",
            .handle = show_caller},
      Route{.method = "GET",
            .path = "/people",
            .need = Need::person,
            .query = {{"limit", "N", "users a page, at most 1000"},
                      {"after", "NAME", "the `next` of the page before"}},
            .answer = {"PersonList"},
            .summary = "Yourself, and the users whom you may change, by name, a page at a time",
            .handle = list_people},
      Route{.method = "PUT",
            .path = "/people/{name}",
            .need = Need::queue_admin,
            .request = {"PersonRequest"},
            .answer = {"SubmitReply"},
            .summary = "Makes a user known, or gives him these roles in place of those he has",
            .handle = set_person},
      Route{.method = "POST",
            .path = "/people/{name}/block",
            .need = Need::queue_admin,
            .answer = {"SubmitReply"},
            .summary = "Lets no token of a user open anything; his jobs that run go on, others do not start",
            .handle = block_person},
      Route{.method = "POST",
            .path = "/people/{name}/unblock",
            .need = Need::queue_admin,
            .answer = {"SubmitReply"},
            .summary =
                "Lets the tokens of a user open again what they did; it takes as high a role as blocked him",
            .handle = unblock_person},
      Route{.method = "DELETE",
            .path = "/people/{name}",
            .need = Need::queue_admin,
            .answer = {"SubmitReply"},
            .summary = "Removes a user with his tokens; refused while he has unfinished jobs",
            .handle = remove_person},
      Route{.method = "GET",
            .path = "/tokens",
            .need = Need::person,
            .query = {{"limit", "N", "tokens a page, at most 1000 and the rest of the last user's"},
                      {"after", "NAME", "the `next` of the page before"}},
            .answer = {"TokenList"},
            .summary =
                "Your tokens, and those that you may revoke, a page at a time; never the tokens themselves",
            .handle = list_tokens},
      Route{.method = "POST",
            .path = "/tokens",
            .need = Need::person,
            .request = {"TokenRequest"},
            .answer = {"TokenReply"},
            .summary = "Makes a token; it is told in the answer, and never again",
            .handle = make_token},
      Route{.method = "DELETE",
            .path = "/tokens/{id}",
            .need = Need::person,
            .answer = {"SubmitReply"},
            .summary = "Revokes a token: it opens nothing from then on",
            .handle = revoke_token},
  };
  return table;
}

}  // namespace tutti::controller
