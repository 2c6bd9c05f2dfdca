#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "control/wire/full_test.hpp"
#include "control/wire/json.hpp"
#include "control/wire/objects.hpp"
#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

TEST(Views, StatusTellsWhatAgentsKeep) {
  cluster::State state;
  const auto kept = [&] { return nlohmann::json::parse(status_json(state, {}, "1", {}))["kept"]; };
  state.nodes["a"].name = "a";
  EXPECT_FALSE(kept().contains("logs_bytes_max")) << "nobody has said so";
  state.nodes["a"].keeps = cluster::NodeKeeps{gib(20), 20'000, 24h * 14, 0s};
  state.nodes["b"].keeps = cluster::NodeKeeps{gib(10), 5'000, 24h * 7, 24h * 90};
  EXPECT_EQ(kept()["logs_bytes_max"], static_cast<double>(gib(30).count()));
  EXPECT_EQ(kept()["logs_ranks_max"], 25'000.0);
  EXPECT_EQ(kept()["logs_age_s"], 14 * 86'400.0);
  EXPECT_EQ(kept()["logs_age_min_s"], 7 * 86'400.0);
  EXPECT_EQ(kept()["checkpoints_age_s"], 0.0) << "for ever";
  EXPECT_EQ(kept()["checkpoints_age_min_s"], 90 * 86'400.0);
}

TEST(Views, StatusTellsWhatIsAmissAndNothingOfWhatIsWell) {
  const auto status = [](const StatusTroubles& troubles) {
    return nlohmann::json::parse(status_json({}, {}, "1", {}, troubles));
  };
  EXPECT_FALSE(status({}).contains("secrets_error") || status({}).contains("authority_error"));
  EXPECT_EQ(status({.secrets = "no key"})["secrets_error"], "no key");
  EXPECT_EQ(status({.authority = "ends soon"})["authority_error"], "ends soon");
}

TEST(Views, ShowWhatScriptsReadByName) {
  cluster::State state;
  state.nodes["a"] = {"a",   "s/p/r", "10.0.0.1", 7, {{{"H100", gib(80), "u", 0}}, 8, gib(1)},
                      false, false,   {}};
  state.nodes["b"] = state.nodes["a"];
  state.nodes["b"].name = "b";
  state.jobs[cluster::JobId(42)] = full_job();
  cluster::derive(state, Instant(1s));
  const std::string job = job_json(state, state.jobs.at(cluster::JobId(42)), false);
  for (const char* part :
       {R"("id":"42")", R"("state":"running")", R"("ranks":4)", R"("ranks_wanted":6)", R"("gpus":4)",
        R"("nodes":["a","b"])", R"("devices":[{"node":"a","devices":[0,1]})",
        R"("submitted_at":"2023-11-14T22:13:20.000Z")", R"("reason":"because")"}) {
    EXPECT_NE(job.find(part), std::string::npos) << part << " in " << job;
  }
  // What a list of thousands need not repeat stands in the view of one job only.
  const std::string detailed = job_json(state, state.jobs.at(cluster::JobId(42)), true);
  EXPECT_TRUE(detailed.starts_with(job.substr(0, job.size() - 1) + ",")) << detailed;
  for (const char* part : {R"("command":)", R"("rank_states":)", R"("workdir":)"}) {
    EXPECT_EQ(job.find(part), std::string::npos) << part << " in " << job;
    EXPECT_NE(detailed.find(part), std::string::npos) << part << " in " << detailed;
  }
  const std::string nodes = nodes_json(state, {});
  EXPECT_NE(nodes.find(R"("devices":[{"index":0,"model":"H100","memory_mib":81920,"share_free":0}])"),
            std::string::npos)
      << nodes;
}

TEST(Views, NodesComeInPages) {
  cluster::State state;
  for (int node = 1; node <= 5; ++node) {
    const std::string name = "n" + std::to_string(node);
    state.nodes[name].name = name;
  }
  cluster::derive(state, Instant(1s));
  const std::string first = nodes_json(state, {.after = "", .limit = 2});
  EXPECT_NE(first.find(R"("name":"n2")"), std::string::npos) << first;
  EXPECT_EQ(first.find(R"("name":"n3")"), std::string::npos) << first;
  EXPECT_NE(first.find(R"("next":"n2")"), std::string::npos) << first;
  const std::string last = nodes_json(state, {.after = "n3", .limit = 2});
  EXPECT_NE(last.find(R"("name":"n5")"), std::string::npos) << last;
  EXPECT_NE(last.find(R"("next":"")"), std::string::npos) << last;
}

// As a page shows them, and where the next one begins.
std::vector<std::string> names_on(const std::string& page, std::string& after) {
  std::vector<std::string> names;
  const std::string key = R"("name":")";
  for (std::size_t at = page.find(key); at != std::string::npos; at = page.find(key, at + 1)) {
    const std::size_t begin = at + key.size();
    names.push_back(page.substr(begin, page.find('"', begin) - begin));
  }
  const std::size_t next = page.find(R"("next":")") + 8;
  after = page.substr(next, page.find('"', next) - next);
  return names;
}

TEST(Views, UsersComeInPagesAndThoseWithManyRolesInSmallOnes) {
  cluster::State state;
  std::vector<people::Grant> many;
  for (std::size_t at = 0; at < people::grants_per_person_max; ++at)
    many.push_back({people::Role::user, "q" + std::to_string(at)});
  std::set<std::string> expected;
  for (int at = 0; at < 1'000; ++at) {
    const std::string name = "u" + std::to_string(at);
    state.people.persons[name] = {.name = name, .grants = many};
    if (at % 2 == 0) expected.insert(name);
  }
  PeopleQuery query{.shows = [&](const people::Person& person) { return expected.contains(person.name); }};
  std::set<std::string> seen;
  std::size_t pages = 0;
  do {
    const std::string page = people_json(state, query);
    EXPECT_LT(page.size(), std::size_t{1} << 20) << "none keeps the loop that makes it";
    for (const std::string& name : names_on(page, query.after)) EXPECT_TRUE(seen.insert(name).second);
  } while (++pages < 100 && !query.after.empty());
  EXPECT_EQ(seen, expected);
  query = {.limit = 2};
  std::string after;
  EXPECT_EQ(names_on(people_json(state, query), after), (std::vector<std::string>{"u0", "u1"}));
  EXPECT_EQ(after, "u1");
}

TEST(Views, TokensComeInPagesThatEndBetweenTwoUsers) {
  cluster::State state;
  for (const char* name : {"ada", "bob", "eve"}) {
    state.people.persons[name] = {.name = name};
    if (name == std::string("bob")) continue;
    for (const char* number : {"1", "2", "3"})
      people::add(state.people, {.id = std::string(name) + number, .person = name});
  }
  const std::string first = tokens_json(state, Instant(1s), {.limit = 2});
  EXPECT_NE(first.find(R"("id":"ada3")"), std::string::npos) << first;
  EXPECT_EQ(first.find("eve"), std::string::npos) << first;
  EXPECT_NE(first.find(R"("next":"ada")"), std::string::npos) << first;
  const std::string last = tokens_json(state, Instant(1s), {.after = "ada"});
  EXPECT_NE(last.find(R"("id":"eve3")"), std::string::npos) << last;
  EXPECT_NE(last.find(R"("next":"")"), std::string::npos) << last;
}

TEST(Views, PagesGoFromNewToOld) {
  cluster::State state;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    cluster::Job job = full_job();
    job.id = cluster::JobId(id);
    job.holds = false;
    job.state = id % 2 == 0 ? cluster::JobState::queued : cluster::JobState::succeeded;
    state.jobs[job.id] = job;
  }
  cluster::derive(state, Instant(1s));
  const std::string first = *jobs_json(state, {.all = true, .limit = 2});
  EXPECT_LT(first.find(R"("id":"5")"), first.find(R"("id":"4")"));
  EXPECT_NE(first.find(R"("next":"4")"), std::string::npos) << first;
  const std::string last = *jobs_json(state, {.all = true, .before = 2, .limit = 2});
  EXPECT_NE(last.find(R"("id":"1")"), std::string::npos);
  EXPECT_NE(last.find(R"("next":"")"), std::string::npos);
  EXPECT_EQ(jobs_json(state, {.all = false, .limit = 9})->find(R"("id":"5")"), std::string::npos)
      << "finished";
}

TEST(Views, TheElementsOfAnArrayAreFoundByOneOfThem) {
  cluster::State state;
  for (std::uint64_t id = 1; id <= 6; ++id) {
    cluster::Job job = full_job();
    job.id = cluster::JobId(id);
    job.holds = false;
    job.state = id == 3 ? cluster::JobState::succeeded : cluster::JobState::queued;
    job.spec.array.reset();
    if (id >= 2 && id <= 4)
      job.spec.array = cluster::ArrayPart{cluster::JobId(2), static_cast<std::int32_t>(id), 3, 0};
    state.jobs[job.id] = job;
  }
  cluster::derive(state, Instant(1s));
  const auto ids = [&](const JobQuery& query) {
    std::string found;
    const std::string text = *jobs_json(state, query);
    for (std::size_t at = text.find(R"("id":")"); at != std::string::npos;
         at = text.find(R"("id":")", at + 1))
      found += text[at + 6];
    return found;
  };
  EXPECT_EQ(ids({.all = true, .array = 3}), "432");
  EXPECT_EQ(ids({.all = false, .array = 3}), "42");
  EXPECT_EQ(ids({.all = true, .array = 3, .before = 4, .limit = 1}), "3");
  EXPECT_NE(jobs_json(state, {.array = 2})->find(R"("array_id":"2","array_index":4,"array_count":3)"),
            std::string::npos);
  EXPECT_FALSE(jobs_json(state, {.array = 1}).ok()) << "not an element of an array";
  EXPECT_FALSE(jobs_json(state, {.array = 7}).ok());
}

TEST(Views, AJobTellsWhichLostNodesMayStillRunIt) {
  cluster::State state;
  cluster::Job job = full_job();
  cluster::Node& node = state.nodes["gone"];
  node.name = "gone";
  node.strays.insert({job.id, 0, 1});
  EXPECT_EQ(job_json(state, job, true).find(R"("gone")"), std::string::npos) << "it is not lost";
  node.lost = true;
  EXPECT_NE(job_json(state, job, true).find(R"("may_run_on":["gone"])"), std::string::npos);
  job.id = cluster::JobId(job.id.number() + 1);
  EXPECT_EQ(job_json(state, job, true).find(R"("gone")"), std::string::npos) << "another job's";
}

TEST(Views, AStateThatThereIsNotIsRefusedAndTheKnownOnesAreNamed) {
  for (const char* const known : {"", "held", "ending", "running,queued"})
    EXPECT_TRUE(parse_states(known).ok()) << known;
  for (const char* const unknown : {"zz", "running,", "Running", "running queued"}) {
    const auto refused = parse_states(unknown);
    ASSERT_FALSE(refused.ok()) << unknown;
    EXPECT_NE(refused.error().remedy().find("restarting, held"), std::string::npos);
  }
  // Every state that a job can be in is one of them.
  cluster::Job job = full_job();
  for (const auto state : {cluster::JobState::queued, cluster::JobState::starting, cluster::JobState::running,
                           cluster::JobState::restarting, cluster::JobState::succeeded,
                           cluster::JobState::failed, cluster::JobState::cancelled}) {
    job.state = state;
    for (const char* const held : {"", "by its user"}) {
      job.held = held;
      EXPECT_TRUE(parse_states(cluster::state_name(job)).ok()) << cluster::state_name(job);
    }
  }
}

// The text of the query is read once, whatever it repeats, and not for each job.
TEST(Views, JobsAreFoundByTheirStates) {
  cluster::State state;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    cluster::Job job = full_job();
    job.id = cluster::JobId(id);
    job.ending = cluster::EndCause::none;
    job.state = id == 1   ? cluster::JobState::succeeded
                : id == 2 ? cluster::JobState::running
                          : cluster::JobState::queued;
    if (job.state != cluster::JobState::running) job.places.clear(), job.ranks.clear();
    if (id == 4) job.held = "by its user";
    state.jobs[job.id] = job;
  }
  const auto found = [&](std::string_view states) {
    const std::string text =
        *jobs_json(state, {.all = true, .limit = 9, .states = parse_states(states).value()});
    std::string ids;
    for (const char id : {'1', '2', '3', '4'}) {
      if (text.find(std::string(R"("id":")") + id + '"') != std::string::npos) ids += id;
    }
    return ids;
  };
  EXPECT_EQ(found(""), "1234");
  EXPECT_EQ(found("queued"), "3");
  EXPECT_EQ(found("queued,queued,held,running"), "234");
  EXPECT_EQ(found("ending"), "");
  state.jobs.at(cluster::JobId(2)).ending = cluster::EndCause::cancelled;
  EXPECT_EQ(found("ending,succeeded"), "12");
  std::string many = "queued";
  for (std::size_t count = 1; count < StateSet().size(); ++count) many += ",queued";
  EXPECT_EQ(found(many), "3");
  const auto refused = parse_states(many + ",queued");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(), "it names more states than there are");
}

TEST(Views, AQueueShowsWhoUsesWhat) {
  cluster::State state;
  state.queues["research"] = {"research", 4000, 8000, sched::no_limit, 2};
  state.queues["research/vision"] = {"research/vision"};
  state.queues["research/vision"].priority_max = 10;
  cluster::Job job = full_job();
  job.id = cluster::JobId(1);
  job.holds = false;
  job.places.clear();
  job.ranks.clear();
  job.state = cluster::JobState::queued;
  job.spec.queue = "research/vision";
  job.spec.user = "ada";
  job.served = 0;
  state.jobs[job.id] = job;
  cluster::derive(state, Instant(1s));
  EXPECT_EQ(queues_json(state, Instant(1s), people::root_caller()),
            R"({"queues":[{"name":"default","queued":0,"running":0,"gpus":0,"guarantee_gpus":0,"weight":1,)"
            R"("gpus_past":0,"users":[]},)"
            R"({"name":"research","queued":1,"running":0,"gpus":0,"guarantee_gpus":4,"limit_gpus":8,)"
            R"("weight":2,"gpus_past":0,"users":[]},)"
            R"({"name":"research/vision","queued":1,"running":0,"gpus":0,"guarantee_gpus":0,"weight":1,)"
            R"("gpus_past":0,"users":[{"name":"ada","gpus":0,"gpus_past":0,"queued":1,"running":0}],)"
            R"("priority_max":10}]})");
}

TEST(Views, AnExplanationHasTheDocumentedKeys) {
  sched::Explanation answer;
  answer.why = "needs 8 GPUs";
  answer.queue = "default";
  answer.ahead = 7;
  answer.ahead_ids = {cluster::JobId(3)};
  answer.unknown = "job 12 runs without a time limit";
  answer.suggestions = {{"7 instead of 8 nodes", Instant(1s), true}};
  const std::string common = R"({"id":"9","state":"queued","why":"needs 8 GPUs","starts_now":false,)"
                             R"("queue":"default","ahead":7,"ahead_ids":["3"],)";
  const std::string suggestions =
      R"("suggestions":[{"change":"7 instead of 8 nodes","start":"1970-01-01T00:00:01.000Z","now":true}])";
  EXPECT_EQ(explain_json(answer, "9", "queued"),
            common + R"("unknown":"job 12 runs without a time limit",)" + suggestions + "}");
  answer.unknown = "";
  answer.expected_start = Instant(2s);
  EXPECT_EQ(explain_json(answer, "9", "queued"),
            common + R"("expected_start":"1970-01-01T00:00:02.000Z","unknown":"",)" + suggestions + "}");
}

// One of an earlier version has none stored.
TEST(Queues, KeepTheirLargestPriorityAndTheirFirstJob) {
  cluster::Queue bounded{"bounded"};
  bounded.priority_max = 0;
  bounded.jobs_from = 12;
  for (const cluster::Queue& queue : {bounded, cluster::Queue{"free"}}) {
    cluster::State state;
    ASSERT_TRUE(decode_into(state, queue_key(queue.name), encode(queue)).ok());
    EXPECT_EQ(state.queues.at(queue.name), queue);
  }
}

TEST(Tokens, LiveForNinetyDaysUnlessSomethingElseIsSaid) {
  EXPECT_EQ(decode_token("")->life, 24h * 90);
  EXPECT_EQ(decode_token(R"({"role":"viewer"})")->life, 24h * 90);
  EXPECT_EQ(decode_token(R"({"expires_in_s":60})")->life, 60s);
  EXPECT_EQ(decode_token(R"({"expires_in_s":0})")->life, 0s) << "for ever, if that is said";
  EXPECT_FALSE(decode_token(R"({"expires_in_s":-1})").ok());
}

TEST(Queues, AreReadInGpus) {
  const auto queue =
      decode_queue("a/b", R"({"guarantee_gpus":1.5,"limit_gpus":-1,"weight":0.5,"priority_max":10})");
  ASSERT_TRUE(queue.ok());
  EXPECT_EQ(queue->name, "a/b");
  EXPECT_EQ(queue->guarantee, 1500);
  EXPECT_EQ(queue->limit, sched::no_limit);
  EXPECT_FALSE(queue->user_limit.has_value());
  EXPECT_EQ(queue->weight, 0.5);
  EXPECT_EQ(queue->priority_max, 10);
  EXPECT_TRUE(decode_queue("a", "").ok());
  EXPECT_FALSE(decode_queue("a", "[]").ok());
  EXPECT_FALSE(decode_queue("a", R"({"limit":3})").ok());
  for (const char* number : {"-2", "1e300", R"("NaN")", R"("Infinity")"}) {
    const auto wrong = decode_queue("a", std::string(R"({"limit_gpus":)") + number + "}");
    ASSERT_TRUE(wrong.ok()) << number;
    EXPECT_GT(*wrong->limit, cluster::queue_share_max) << "which no queue may have";
  }
}

TEST(Views, ASlowLinkSaysWhy) {
  const std::string text = fabric_json(three_links());
  EXPECT_TRUE(text.starts_with(R"({"links":[{"from":"a","to":"b","latency_us":10,"bandwidth_gb_s":4.1,)"
                               R"("slow":true,"measured_at":"2023-11-14T22:13:20.000Z",)"
                               R"("reason":"41% of its neighbours"},)"
                               R"({"from":"a","to":"c","latency_us":12.5,"bandwidth_gb_s":10,"slow":false,)"))
      << text;
  EXPECT_EQ(fabric_json({}), R"({"links":[]})");
}

TEST(Fabric, LinksAreReadWithNamesAndNumbersInRange) {
  const auto why = [](const std::string& link) {
    const auto links = decode_fabric("{\"links\":[" + link + "]}");
    return links ? "fine" : links.error().text();
  };
  const auto with = [&](const std::string& latency, const std::string& bandwidth) {
    return why(R"({"from":"a","to":"b","latency_us":)" + latency + R"(,"bandwidth_gb_s":)" + bandwidth + "}");
  };
  EXPECT_EQ(with("1", "1"), "fine");
  EXPECT_EQ(with("1e-9", "1e-12"), "fine");
  const std::string range =
      "link from a to b : latency_us and bandwidth_gb_s are numbers above 0, at most 60000000 and 1000000";
  for (const std::string number : {"0", "-1", "1e300", R"("NaN")", R"("Infinity")"}) {
    EXPECT_EQ(with(number, "1"), range) << number;
    EXPECT_EQ(with("1", number), range) << number;
  }
  EXPECT_EQ(why(R"({"from":"../a","to":"b","latency_us":1,"bandwidth_gb_s":1})"),
            "'../a' is no name for a node");
  EXPECT_EQ(why("{}"), "'' is no name for a node");
  EXPECT_NE(why(R"({"form":"a"})").find("not the JSON that is expected"), std::string::npos);
  const auto tiny =
      decode_fabric(R"({"links":[{"from":"a","to":"b","latency_us":0.2405,"bandwidth_gb_s":1e-12}]})");
  ASSERT_TRUE(tiny.ok());
  EXPECT_EQ(tiny->front(), (cluster::Link{"a", "b", 241ns, Bytes(1), {}}));
}

TEST(Errors, KeepTheirPartsOverHttp) {
  const Error error = invalid("too many").within("submit").remedy("take fewer");
  EXPECT_EQ(decode_error(400, error_json(error)), error);
  EXPECT_EQ(decode_error(502, "<html>").message(), "it answered with HTTP status 502");
}

TEST(Drain, NowIsTrueOrFalseAndNoWordForIt) {
  EXPECT_FALSE(*decode_drain(""));
  EXPECT_FALSE(*decode_drain("{}"));
  EXPECT_FALSE(*decode_drain(R"({"now":false})"));
  EXPECT_TRUE(*decode_drain(R"({"now":true})"));
  for (const char* body : {R"({"now":"yes"})", R"({"now":"true"})", R"({"now":1})", R"({"now":[]})"}) {
    const auto refused = decode_drain(body);
    ASSERT_FALSE(refused.ok()) << body;
    EXPECT_EQ(refused.error().code(), ErrorCode::invalid) << body;
  }
}

}  // namespace
}  // namespace tutti::wire
