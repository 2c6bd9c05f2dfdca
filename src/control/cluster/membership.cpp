#include "control/cluster/membership.hpp"

#include <algorithm>
#include <utility>

#include "control/cluster/machine.hpp"

namespace tutti::cluster {

// Both go on together; where they differ, the last '*' takes one letter more.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t letter = 0;
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  while (letter < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = letter;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[letter])) {
      ++at;
      ++letter;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      letter = ++taken;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(std::min(at, pattern.size())),
                     pattern.end(), [](char left) { return left == '*'; });
}

void Machine::touch(const Member& member) { effects_.members.insert(member.name); }

void Machine::on(const MakeJoinToken& event) {
  if (state_.join_tokens.size() >= join_tokens_max)
    return fail(invalid("there are " + std::to_string(join_tokens_max) + " tokens already")
                    .remedy("`tutti nodes tokens revoke ID` removes those that nobody needs"));
  JoinToken token = event.token;
  token.made_at = now_;
  token.expires_at = now_ + event.life;
  effects_.join_tokens.insert(token.id);
  state_.join_tokens.insert_or_assign(token.id, std::move(token));
}

void Machine::on(const RevokeJoinToken& event) {
  if (state_.join_tokens.erase(event.id) == 0)
    return fail(invalid("there is no token '" + event.id + "'").remedy("`tutti nodes tokens` lists them"));
  effects_.join_tokens.insert(event.id);
}

Result<> Machine::may_use(const JoinToken& token, const NodeName& name) const {
  const std::string remedy = "`tutti nodes token` makes another one";
  if (now_ >= token.expires_at)
    return invalid("the token has expired at " + format_instant(token.expires_at) + ", and now it is " +
                   format_instant(now_))
        .remedy(remedy);
  if (token.uses_left <= 0) return invalid("the token is used up").remedy(remedy);
  if (!token.name_pattern.empty() && !matches(token.name_pattern, name))
    return invalid("the token is for nodes with a name such as '" + token.name_pattern + "', and this is '" +
                   name + "'")
        .remedy("--name gives the node another name");
  return {};
}

// Whoever has lost all its files joins under its name again once it is lost here, too.
Result<> Machine::may_be_called(const Member& asks) const {
  const auto node = state_.nodes.find(asks.name);
  const auto member = state_.members.find(asks.name);
  const bool is_alive = node != state_.nodes.end() && !node->second.lost;
  const auto is_same = [&](const std::string& identity) {
    return !asks.identity.empty() && identity == asks.identity;
  };
  const bool has_joined = member != state_.members.end() && !member->second.revoked &&
                          member->second.until > now_ && member->second.key != asks.key &&
                          !is_same(member->second.identity);
  const bool is_taken = is_alive ? !is_same(node->second.identity) : has_joined && node == state_.nodes.end();
  if (!is_taken) return {};
  return invalid("the name '" + asks.name + "' is that of another node")
      .remedy("--name gives this one another name; if the other one is gone for good, `tutti nodes revoke " +
              asks.name + "` frees its name");
}

void Machine::on(const Join& event) {
  const auto found = std::find_if(state_.join_tokens.begin(), state_.join_tokens.end(),
                                  [&](const auto& entry) { return entry.second.hash == event.token_hash; });
  if (found == state_.join_tokens.end())
    return fail(invalid("the token is none of this cluster, or it was revoked")
                    .remedy("`tutti nodes token` makes another one"));
  JoinToken& token = found->second;
  Member member = event.member;
  member.token = token.id;
  const auto known = state_.members.find(member.name);
  // Who has not heard the answer asks again: it has been let in already.
  const bool is_repeated = known != state_.members.end() && known->second.key == member.key &&
                           known->second.token == token.id && !known->second.revoked &&
                           known->second.until > now_;
  if (known != state_.members.end() && known->second.revoked && known->second.key == member.key)
    return fail(invalid("the key of node '" + member.name + "' was revoked")
                    .remedy("remove node.key and node.pem in the agent's folder, and join again"));
  if (!is_repeated) {
    if (auto may = may_use(token, member.name); !may) return fail(std::move(may).error());
    if (auto may = may_be_called(member); !may) return fail(std::move(may).error());
    if (known == state_.members.end() && state_.members.size() >= members_max)
      return fail(failed("there are " + std::to_string(members_max) + " nodes with a certificate already"));
    --token.uses_left;
    effects_.join_tokens.insert(token.id);
  }
  touch(member);
  state_.members.insert_or_assign(member.name, std::move(member));
}

void Machine::on(const Renew& event) {
  const auto found = state_.members.find(event.member.name);
  if (found == state_.members.end() || found->second.revoked || found->second.key != event.member.key)
    return fail(invalid("the certificate of node '" + event.member.name + "' is not good any more")
                    .remedy("`tutti agent join` with a new token (`tutti nodes token`) gets another one"));
  Member& member = found->second;
  member.serial = event.member.serial;
  member.authority = event.member.authority;
  member.signed_at = event.member.signed_at;
  member.until = event.member.until;
  member.knows_next = event.member.knows_next;
  member.held = event.member.held;
  touch(member);
}

void Machine::on(const RevokeNode& event) {
  const auto found = state_.members.find(event.node);
  if (found == state_.members.end())
    return fail(invalid("node '" + event.node + "' has no certificate of this cluster")
                    .remedy("`tutti nodes` lists the nodes; one that has joined with the join token of the "
                            "cluster's folder has none"));
  if (!std::exchange(found->second.revoked, true)) touch(found->second);
  if (Node* node = find(event.node); node != nullptr && !node->lost) lose(*node);
}

bool Machine::is_revoked(const NodeName& name) const {
  const auto member = state_.members.find(name);
  return member != state_.members.end() && member->second.revoked;
}

void Machine::forget_member(const NodeName& name) {
  if (state_.members.erase(name) > 0) effects_.members.insert(name);
}

// One that ends soon after its start has given nobody the time to renew a certificate. The clock may have
// been set back since.
void Machine::note_presence() {
  const bool has_begun = now_ - state_.loaded_at < presence_noted_every;
  const bool is_noted = std::chrono::abs(now_ - state_.there_at) < presence_noted_every;
  if (state_.there_at != Instant() && (has_begun || is_noted)) return;
  state_.there_at = now_;
  effects_.cluster = true;
}

// What is forgotten opens nothing, as before.
void Machine::expire_members() {
  std::erase_if(state_.join_tokens, [this](const auto& entry) {
    const bool is_over = now_ - entry.second.expires_at > join_tokens_kept;
    if (is_over) effects_.join_tokens.insert(entry.first);
    return is_over;
  });
  auto at = state_.members.upper_bound(state_.members_looked_at);
  for (std::size_t looked = 0; looked < members_looked_at_per_step_max && at != state_.members.end();
       ++looked) {
    state_.members_looked_at = at->first;
    const bool is_over = now_ - at->second.until > members_kept;
    if (is_over) effects_.members.insert(at->first);
    at = is_over ? state_.members.erase(at) : std::next(at);
  }
  if (at == state_.members.end()) state_.members_looked_at.clear();
}

}  // namespace tutti::cluster
