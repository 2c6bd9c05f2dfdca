#include "control/cluster/deeds.hpp"

#include <algorithm>
#include <map>
#include <string_view>

namespace tutti::cluster {
namespace {

constexpr std::size_t key_shown_bytes = 16;
constexpr std::size_t jobs_named_max = 20;
constexpr std::size_t id_bytes_max = 16;

std::string until(Instant at) { return at == Instant() ? "for ever" : "until " + format_instant(at); }

// "0.5", "4"
std::string short_number(double number) {
  std::string text = std::to_string(number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// Thousandths of devices.
std::string share(std::int64_t amount) {
  return amount == sched::no_limit ? "none" : short_number(static_cast<double>(amount) / sched::whole_share);
}

std::string grants_text(const std::vector<people::Grant>& grants) {
  std::string text;
  for (const people::Grant& grant : grants) text += (text.empty() ? "" : ", ") + people::text_of(grant);
  return text.empty() ? "no role" : text;
}

std::string token_text(const people::Token& token) {
  return "of " + token.person + ", at most " + people::text_of({token.role_max, token.queue}) + ", " +
         until(token.expires_at);
}

std::string submit_text(const Submit& event) {
  const JobSpec& spec = event.specs.front();
  std::string text = "'" + spec.name + "' of " + spec.user + " in " + spec.queue + ", " +
                     std::to_string(spec.shape.ranks) + (spec.shape.ranks == 1 ? " rank" : " ranks");
  if (event.specs.size() > 1) text += ", " + std::to_string(event.specs.size()) + " times";
  return text;
}

// What people paste in place of an id may be the token itself.
std::string id_text(const std::string& id) {
  const bool is_id =
      !id.empty() && id.size() <= id_bytes_max && std::all_of(id.begin(), id.end(), [](char letter) {
        return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z');
      });
  return is_id ? id : "of an id that is none";
}

// One overload for each event of which something is to be said.
struct Words {
  using Said = std::optional<Deed>;

  Said operator()(const Submit& event) const {
    return Deed{.verb = "submit", .object = "jobs", .what = event.specs.empty() ? "" : submit_text(event)};
  }
  Said operator()(const Cancel& event) const {
    return Deed{.verb = "cancel", .object = job(event.job, event.whole_array), .what = now(event.now)};
  }
  Said operator()(const Release& event) const {
    return Deed{.verb = "release", .object = job(event.job, event.whole_array)};
  }
  Said operator()(const Drain& event) const {
    return Deed{.verb = "drain", .object = "node " + event.node, .what = now(event.now)};
  }
  Said operator()(const Resume& event) const {
    return Deed{.verb = "resume", .object = "node " + event.node};
  }
  Said operator()(const FabricMeasured& event) const {
    return Deed{.verb = "set", .object = "fabric", .what = std::to_string(event.links.size()) + " links"};
  }
  Said operator()(const SetQueue& event) const {
    return Deed{.verb = "set", .object = "queue " + event.name};
  }
  Said operator()(const RemoveQueue& event) const {
    return Deed{.verb = "remove", .object = "queue " + event.name};
  }
  Said operator()(const SetPerson& event) const {
    return Deed{.verb = "set", .object = "user " + event.name};
  }
  Said operator()(const RemovePerson& event) const {
    return Deed{.verb = "remove", .object = "user " + event.name};
  }
  Said operator()(const IssueToken& event) const {
    return Deed{.verb = "make", .object = "token " + event.token.id, .what = token_text(event.token)};
  }
  Said operator()(const LogIn& event) const {
    return Deed{.verb = "log in",
                .object = "token " + event.token.id,
                .what = event.login,
                .who = event.token.person};
  }
  Said operator()(const RevokeToken& event) const {
    return Deed{.verb = "revoke", .object = "token " + id_text(event.token)};
  }
  Said operator()(const RemoveNode& event) const {
    return Deed{.verb = "remove", .object = "node " + event.node};
  }
  Said operator()(const RemoveJobs& event) const {
    std::string ids;
    for (std::size_t at = 0; at < std::min(event.jobs.size(), jobs_named_max); ++at)
      ids += (at == 0 ? "" : ", ") + event.jobs[at].text();
    if (event.jobs.size() > jobs_named_max)
      ids += " and " + std::to_string(event.jobs.size() - jobs_named_max) + " more";
    return Deed{.verb = "remove", .object = "jobs", .what = std::move(ids)};
  }
  Said operator()(const MakeJoinToken& event) const {
    return Deed{.verb = "make", .object = "join token " + event.token.id};
  }
  Said operator()(const RevokeJoinToken& event) const {
    return Deed{.verb = "revoke", .object = "join token " + id_text(event.id)};
  }
  Said operator()(const Join& event) const {
    return Deed{.verb = "join", .object = "node " + event.member.name, .who = "node " + event.member.name};
  }
  Said operator()(const Renew& event) const {
    return Deed{.verb = "renew", .object = "node " + event.member.name, .who = "node " + event.member.name};
  }
  Said operator()(const RevokeNode& event) const {
    return Deed{.verb = "revoke", .object = "node " + event.node};
  }
  Said operator()(const SetSecret& event) const {
    return Deed{.verb = "set",
                .object = "secret " + text_of(event.id),
                .what = std::to_string(event.bytes) + " bytes"};
  }
  Said operator()(const RemoveSecret& event) const {
    return Deed{.verb = "remove", .object = "secret " + text_of(event.id)};
  }
  Said operator()(const UseSecretKey& event) const {
    return Deed{.verb = "rotate", .object = "key of the secrets", .what = event.key};
  }
  Said operator()(const Serve& event) const {
    const JobSpec& spec = event.replica;
    return Deed{.verb = "serve",
                .object = "service " + event.name,
                .what = (event.only_command ? "another command" : "of " + spec.user + " in " + spec.queue) +
                        (event.canary_share > 0 ? ", as a canary" : "")};
  }
  Said operator()(const Promote& event) const {
    return Deed{.verb = "promote", .object = "service " + event.service};
  }
  Said operator()(const RollBack& event) const {
    return Deed{.verb = "roll back", .object = "service " + event.service};
  }
  Said operator()(const ScaleService& event) const {
    return Deed{.verb = "scale", .object = "service " + event.service};
  }
  Said operator()(const StopService& event) const {
    return Deed{.verb = "stop", .object = "service " + event.service};
  }
  Said operator()(const Noted& event) const {
    return Deed{.verb = event.verb, .object = event.object, .what = event.what, .who = event.who};
  }
  template <class Other>
  Said operator()(const Other&) const {
    return std::nullopt;
  }

  static std::string job(JobId id, bool whole_array) {
    return (whole_array ? "the array of job " : "job ") + id.text();
  }
  static std::string now(bool is_now) { return is_now ? "now" : ""; }
};

class Standings {
 public:
  explicit Standings(const State& state) : state_(state) {}

  std::string operator()(const Cancel& event) const { return jobs(event.job, event.whole_array); }
  std::string operator()(const Release& event) const { return jobs(event.job, event.whole_array); }
  std::string operator()(const Drain& event) const { return node(event.node); }
  std::string operator()(const Resume& event) const { return node(event.node); }
  std::string operator()(const RemoveNode& event) const { return node(event.node); }
  std::string operator()(const FabricMeasured&) const {
    return std::to_string(state_.fabric->size()) + " links";
  }
  std::string operator()(const SetQueue& event) const { return queue(event.name); }
  std::string operator()(const RemoveQueue& event) const { return queue(event.name); }
  std::string operator()(const SetPerson& event) const { return person(event.name); }
  std::string operator()(const RemovePerson& event) const { return person(event.name); }
  std::string operator()(const IssueToken& event) const { return token(event.token.id); }
  std::string operator()(const LogIn& event) const { return token(event.token.id); }
  std::string operator()(const RevokeToken& event) const { return token(event.token); }
  std::string operator()(const MakeJoinToken& event) const { return join_token(event.token.id); }
  std::string operator()(const RevokeJoinToken& event) const { return join_token(event.id); }
  std::string operator()(const Join& event) const { return member(event.member.name); }
  std::string operator()(const Renew& event) const { return member(event.member.name); }
  std::string operator()(const RevokeNode& event) const { return member(event.node); }
  std::string operator()(const SetSecret& event) const { return secret(event.id); }
  std::string operator()(const RemoveSecret& event) const { return secret(event.id); }
  std::string operator()(const UseSecretKey&) const { return state_.secret_key; }
  std::string operator()(const Serve& event) const { return service(event.name); }
  std::string operator()(const Promote& event) const { return service(event.service); }
  std::string operator()(const RollBack& event) const { return service(event.service); }
  std::string operator()(const ScaleService& event) const { return service(event.service); }
  std::string operator()(const StopService& event) const { return service(event.service); }
  template <class Other>
  std::string operator()(const Other&) const {
    return "";
  }

 private:
  std::string job(JobId id) const {
    const auto found = state_.jobs.find(id);
    return found == state_.jobs.end() ? "" : std::string(state_name(found->second));
  }
  // Of an array how many are in which state: "3 running, 1 succeeded".
  std::string jobs(JobId id, bool whole_array) const {
    if (!whole_array) return job(id);
    const auto elements = array_elements(state_, id);
    if (!elements) return job(id);
    std::map<std::string_view, std::size_t> counts;
    for (const JobId element : *elements) ++counts[state_name(state_.jobs.at(element))];
    std::string text;
    for (const auto& [state, count] : counts)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(state);
    return text;
  }
  std::string node(const NodeName& name) const {
    const auto found = state_.nodes.find(name);
    return found == state_.nodes.end() ? "" : std::string(name_of(node_state(state_, found->second)));
  }
  std::string queue(const QueueName& name) const {
    const auto found = state_.queues.find(name);
    if (found == state_.queues.end()) return "";
    const Queue& of = found->second;
    return "guarantee " + share(of.guarantee) + ", limit " + share(of.limit) + ", limit of a user " +
           share(of.user_limit) + ", weight " + short_number(of.weight) + ", priority " +
           std::to_string(of.priority_max);
  }
  std::string person(const people::Name& name) const {
    const auto found = state_.people.persons.find(name);
    if (found == state_.people.persons.end()) return "";
    const people::Person& of = found->second;
    return std::string(people::name_of(of.kind)) + ", " + grants_text(of.grants) +
           (of.blocked ? ", blocked" : "");
  }
  std::string token(const people::TokenId& id) const {
    const auto found = state_.people.tokens.find(id);
    return found == state_.people.tokens.end() ? "" : token_text(found->second);
  }
  std::string join_token(const std::string& id) const {
    const auto found = state_.join_tokens.find(id);
    if (found == state_.join_tokens.end()) return "";
    const JoinToken& of = found->second;
    const std::string names = of.name_pattern.empty() ? "any name" : of.name_pattern;
    return std::to_string(of.uses_left) + " uses left, for " + names + ", " + until(of.expires_at);
  }
  std::string secret(const SecretId& id) const {
    const auto found = state_.secrets.find(id);
    if (found == state_.secrets.end()) return "";
    return std::to_string(found->second.bytes) + " bytes, of " + format_instant(found->second.changed_at);
  }
  std::string service(const ServiceName& name) const {
    const auto found = state_.services.find(name);
    if (found == state_.services.end()) return "";
    const Service& of = found->second;
    std::string text = "version " + std::to_string(of.serving.number) + ", " +
                       std::to_string(of.replicas_min) + " to " + std::to_string(of.replicas_max) +
                       " replicas";
    if (of.next) text += (of.canary_share > 0 ? ", canary " : ", next ") + std::to_string(of.next->number);
    return text;
  }
  std::string member(const NodeName& name) const {
    const auto found = state_.members.find(name);
    if (found == state_.members.end()) return "";
    const Member& of = found->second;
    return "key " + of.key.substr(0, key_shown_bytes) + ", by join token " + of.token + ", " +
           until(of.until) + (of.revoked ? ", revoked" : "");
  }

  const State& state_;
};

}  // namespace

std::optional<Deed> deed_of(const Event& event) { return std::visit(Words(), event); }

std::string standing_of(const State& state, const Event& event) {
  return std::visit(Standings(state), event);
}

std::string jobs_text(const std::vector<JobId>& jobs) {
  if (jobs.empty()) return "jobs";
  if (jobs.size() == 1) return "job " + jobs.front().text();
  return "jobs " + jobs.front().text() + " to " + jobs.back().text();
}

}  // namespace tutti::cluster
