#include <map>

#include <gtest/gtest.h>

#include "base/prng.hpp"
#include "control/wire/json.hpp"
#include "control/wire/messages.hpp"
#include "control/wire/objects.hpp"
#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"
#include "control/wire/views.hpp"

namespace tutti::wire {
namespace {

cluster::JobSpec full_spec() {
  cluster::JobSpec spec;
  spec.name = "train";
  spec.command = {"python3", "train.py"};
  spec.env = {"A=1", "B="};
  spec.workdir = "/data";
  spec.sync = std::string(64, 'a');
  spec.output = "out-%j";
  spec.user = "ada";
  spec.shape = {.ranks = 6,
                .rank_counts = {6, 5, 4},
                .ranks_per_node = 2,
                .nodes = 3,
                .gpu_share = 1000,
                .cpus = 3,
                .memory = gib(2),
                .gpu_model = "H100",
                .gpu_memory = gib(40),
                .within = sched::Level::rack};
  spec.priority = -3;
  spec.time_limit = 90min;
  spec.grace = 20s;
  spec.restarts = 7;
  spec.restart_on_failure = 2;
  spec.slurm_variables = true;
  spec.yields = true;
  spec.array = cluster::ArrayPart{cluster::JobId(40), 2, 5, 3};
  spec.after = {{cluster::JobId(7), true}, {cluster::JobId(8), false}};
  return spec;
}

cluster::Job full_job() {
  cluster::Job job;
  job.id = cluster::JobId(42);
  job.spec = full_spec();
  job.state = cluster::JobState::running;
  job.attempt = 2;
  job.losses = 1;
  job.failures = 1;
  job.submitted_at = Instant(1'700'000'000s);
  job.started_at = Instant(1'700'000'001s);
  job.exit_code = 3;
  job.reason = "because";
  job.last_end = "before";
  job.holds = true;
  job.places = {{"a", {{0, 1000}}}, {"a", {{1, 1000}}}, {"b", {{0, 1000}}}, {"b", {{1, 1000}}}};
  job.ranks = {{cluster::RankState::started},
               {cluster::RankState::exited, 9, "x", true},
               {cluster::RankState::exited, 126, "full", false, {}, true, false, cluster::Told::yes},
               {}};
  job.ended_at = Instant(1'700'000'008s);
  job.master_port = 20'001;
  job.ending = cluster::EndCause::node_lost;
  job.bad_ends = 4;
  job.deadly_attempts = 3;
  job.nodes_lost = 5;
  job.attempt_losses = 2;
  job.not_before = Instant(1'700'000'009s);
  job.submit_key = "key-7";
  return job;
}

TEST(Store, JobsAndNodesComeBackAsTheyWere) {
  cluster::State state;
  cluster::Job job = full_job();
  job.held = "is held";
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(40)), encode_asked(job.spec)).ok());
  ASSERT_TRUE(decode_into(state, job_key(job.id), encode(job)).ok());
  EXPECT_EQ(state.jobs.at(job.id), job);
  EXPECT_TRUE(state.stored_whole.empty());
  cluster::Node node;
  node.name = "n1";
  node.location = "s/p/r";
  node.address = "10.0.0.1";
  node.agent_pid = 77;
  node.inventory = {{{"H100", gib(80), "uuid", 1}}, 16, gib(64)};
  node.draining = node.lost = true;
  node.fault = "the disk is full";
  node.faults = 3;
  node.times_set_aside = 2;
  node.back_at = Instant(1'700'000'001s);
  ASSERT_TRUE(decode_into(state, node_key("n1"), encode(node)).ok());
  EXPECT_EQ(state.nodes.at("n1"), node);
}

cluster::Fabric three_links() {
  const Instant at(1'700'000'000s);
  return {{{"a", "b"}, {"a", "b", 10us, Bytes(4'100'000'000), at}},
          {{"a", "c"}, {"a", "c", 12'500ns, Bytes(10'000'000'000), at}},
          {{"b", "c"}, {"b", "c", 10us, Bytes(10'000'000'000), at}}};
}

TEST(Store, TheFabricComesBackAsItWas) {
  cluster::State state;
  ASSERT_TRUE(decode_into(state, fabric_key(), encode(three_links())).ok());
  EXPECT_EQ(*state.fabric, three_links());
  cluster::Fabric broken = three_links();
  broken.begin()->second.latency = {};
  EXPECT_FALSE(decode_into(state, fabric_key(), encode(broken)).ok());
  EXPECT_FALSE(decode_into(state, fabric_key(), "\xff\xff").ok());
  EXPECT_EQ(*state.fabric, three_links());
}

TEST(Store, KeysSortAsIds) { EXPECT_LT(job_key(cluster::JobId(9)), job_key(cluster::JobId(10))); }

// A change of state writes little, and what the elements of an array share is read once.
TEST(Store, WhatWasAskedForIsStoredApartAndOnceForAnArray) {
  cluster::Job first = full_job();
  first.spec.command = {"bash", std::string(1 << 20, 'x')};
  first.id = cluster::JobId(40);
  cluster::Job second = first;
  second.id = cluster::JobId(41);
  second.spec.array->index = 3;
  EXPECT_EQ(cluster::asked_with(first), cluster::asked_with(second));
  EXPECT_LT(encode(second).size(), 1'000U);
  EXPECT_LT(asked_key(cluster::JobId(~std::uint64_t{0})), job_key(cluster::JobId(1)));
  cluster::State state;
  ASSERT_TRUE(decode_into(state, asked_key(first.id), encode_asked(first.spec)).ok());
  for (const auto& job : {first, second}) {
    ASSERT_TRUE(decode_into(state, job_key(job.id), encode(job)).ok());
    EXPECT_EQ(state.jobs.at(job.id), job);
  }
  EXPECT_EQ(&state.jobs.at(first.id).spec.command.all(), &state.jobs.at(second.id).spec.command.all());
  cluster::State empty;
  EXPECT_FALSE(decode_into(empty, job_key(first.id), encode(first)).ok()) << "nobody has asked for it";
}

TEST(Store, DamageIsNoticed) {
  cluster::State state;
  EXPECT_FALSE(decode_into(state, "asked/1", "\xff\xff").ok());
  EXPECT_FALSE(decode_into(state, "asked/x", encode_asked(full_spec())).ok());
  EXPECT_FALSE(decode_into(state, "job/1", "\xff\xff").ok());
  EXPECT_FALSE(decode_into(state, "planet/earth", "").ok());
}

TEST(Submit, SpecsTravelAsJson) {
  cluster::JobSpec spec = full_spec();
  spec.array->count = 2;
  const auto specs = decode_submit(encode_submit({{spec, spec}, "key-7"}).value());
  ASSERT_TRUE(specs.ok()) << specs.error().text();
  ASSERT_EQ(specs->specs.size(), 2U);
  EXPECT_EQ(specs->specs.front(), spec);
  EXPECT_EQ(specs->key, "key-7");
}

TEST(Submit, WhatIsLeftOutIsAsOnACommandLine) {
  const auto submit = decode_submit(R"({"jobs":[{"command":["/usr/bin/my prog+","x"]}]})");
  ASSERT_TRUE(submit.ok()) << submit.error().text();
  const cluster::JobSpec& spec = submit->specs.front();
  EXPECT_EQ(spec.grace, 10s);
  EXPECT_EQ(spec.restarts, 3);
  EXPECT_EQ(spec.restart_on_failure, 0);
  EXPECT_EQ(spec.shape.ranks, 1);
  EXPECT_EQ(spec.queue, "default");
  EXPECT_EQ(spec.user, "unnamed");
  EXPECT_EQ(spec.name, "my prog_");
  const auto zeros =
      decode_submit(R"({"jobs":[{"command":["x"],"grace_ms":"0","restarts":0,"shape":{"gpu_share":1000}}]})");
  ASSERT_TRUE(zeros.ok()) << zeros.error().text();
  EXPECT_EQ(zeros->specs.front().grace, 0s) << "what is said holds";
  EXPECT_EQ(zeros->specs.front().restarts, 0);
  EXPECT_EQ(zeros->specs.front().shape.ranks, 1);
  EXPECT_EQ(decode_submit(R"({"jobs":[{"command":["x"],"shape":{"rank_counts":[4,2]}}]})")
                ->specs.front()
                .shape.ranks,
            4);
}

TEST(Submit, AnArrayIsSentOnce) {
  cluster::Submit array{{}, "key"};
  cluster::JobSpec element = full_spec();
  element.command = {"bash", "-c", std::string(100'000, 'x')};
  for (std::int32_t index = 0; index < 10'000; ++index) {
    element.array = cluster::ArrayPart{{}, 2 * index, 10'000, 7};
    array.specs.push_back(element);
  }
  const std::string text = encode_submit(array).value();
  EXPECT_LT(text.size(), 300'000U);
  const auto back = decode_submit(text);
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(back->specs, array.specs);
  EXPECT_EQ(&back->specs[0].command.all(), &back->specs[9'999].command.all());
}

TEST(Submit, AnArrayMayBeWrittenOut) {
  cluster::JobSpec spec = full_spec();
  spec.array.reset();
  cluster::Submit all{{}, "key"};
  all.specs.assign(10'000, spec);
  const std::string text = encode_submit(all).value();
  EXPECT_GT(text.size(), std::size_t{1} << 20);
  const auto back = decode_submit(text);
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(back->specs.size(), all.specs.size());
}

// Each is refused by the scan, which keeps nothing: what comes behind the last value that is taken is no
// JSON.
TEST(Submit, MillionsOfValuesAreRefusedBeforeTheyAreMade) {
  const auto why = [](const std::string& head, const std::string& value) {
    std::string text = head;
    for (std::size_t count = 0; count < body_values_max; ++count) text += value + ",";
    const auto refused = decode_submit(text + "no JSON");
    return refused ? "" : refused.error().text();
  };
  for (const auto& [head, value] : std::map<std::string, std::string>{{R"({"jobs":[)", "{}"},
                                                                      {R"({"indices":[)", "0"},
                                                                      {R"({"jobs":[{"after":[)", "{}"},
                                                                      {R"({"jobs":[{"command":[)", "\"\""}})
    EXPECT_NE(why(head, value).find("it has more values than are taken here"), std::string::npos) << head;
}

TEST(Submit, ManyDependenciesAreRefusedInWords) {
  std::string text = R"({"jobs":[{"command":["x"],"after":[)";
  for (int count = 0; count < 100'000; ++count) text += R"({"job":"1","success":true},)";
  text.back() = ']';
  const auto refused = decode_submit(text + "}]}");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().text(), "after : a job waits for at most 1000 others");
}

// Ten thousand copies of long paths would be made of a short body, on the loop that hears the agents.
TEST(Submit, AnArrayIsNotSpreadOutBeyondWhatABodyMayHold) {
  std::string indices;
  for (int index = 0; index < cluster::array_elements_max; ++index) indices += std::to_string(index) + ",";
  indices.pop_back();
  const auto submit = [&](std::size_t path_bytes) {
    return decode_submit(R"({"jobs":[{"command":["x"],"array":{"count":10000},"workdir":"/)" +
                         std::string(path_bytes, 'x') + R"("}],"indices":[)" + indices + "]}");
  };
  EXPECT_TRUE(submit(1000).ok());
  const auto refused = submit(4000);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("of names and paths together"), std::string::npos)
      << refused.error().text();
}

TEST(Submit, BooleansAreTrueOrFalse) {
  const auto why = [](const std::string& member) {
    const auto submit = decode_submit(R"({"jobs":[{"command":["x"],)" + member + "}]}");
    return submit ? "fine" : submit.error().text();
  };
  for (const char* const key : {"yields", "slurm_variables", "slurmVariables"}) {
    const std::string named = "\"" + std::string(key) + "\":";
    EXPECT_EQ(why(named + "true"), "fine");
    EXPECT_NE(why(named + "\"yes\"").find("true or false is expected"), std::string::npos) << key;
    EXPECT_NE(why(named + "1").find("true or false is expected"), std::string::npos) << key;
  }
  EXPECT_NE(why(R"("after":[{"job":"1","success":"true"}])").find("true or false is expected"),
            std::string::npos);
}

TEST(Submit, IndicesAreThoseOfAnArray) {
  const auto why = [](const std::string& rest) {
    const auto refused = decode_submit(R"({"jobs":[{"command":["x"],"shape":{"ranks":1})" + rest);
    return refused ? "" : refused.error().text();
  };
  EXPECT_EQ(why(R"(,"array":{"count":2}}],"indices":[0,1]})"), "");
  EXPECT_NE(why(R"(}],"indices":[0,1]})").find("indices"), std::string::npos);
  EXPECT_NE(why(R"(,"array":{"count":2}}],"indices":[0,-1]})").find("-1 is not between"), std::string::npos);
  for (const char* const unlike : {R"(,"array":{"count":10}}],"indices":[3]})", R"(,"array":{"count":10}}]})",
                                   R"(,"array":{"count":1}}],"indices":[0,1]})"})
    EXPECT_NE(why(unlike).find("the array has a count of"), std::string::npos) << unlike;
  std::string many;
  for (int index = 0; index <= cluster::array_elements_max; ++index) many += (index == 0 ? "0" : ",0");
  EXPECT_NE(why(R"(,"array":{"count":2}}],"indices":[)" + many + "]}").find("at most 10000 elements"),
            std::string::npos);
}

TEST(Submit, RefusesWhatIsNotText) {
  cluster::JobSpec spec = full_spec();
  spec.command.push_back("\xff");
  EXPECT_FALSE(encode_submit({{spec}}).ok());
}

TEST(Submit, RefusesControlCharactersInWords) {
  for (const auto word : {&cluster::JobSpec::name, &cluster::JobSpec::user, &cluster::JobSpec::workdir}) {
    cluster::JobSpec spec = full_spec();
    spec.*word = "a\x1b[2J";
    const auto refused = decode_submit(*encode_submit({{spec}}));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message(), "'a\\x1b[2J' holds a control character");
  }
}

TEST(Messages, WhatANodeCallsItsDevicesIsMadeVisible) {
  cluster::Hello hello{"n1", "here\n", "127.0.0.1", 1, {}, {}};
  hello.inventory.devices = {{"H100\x1b[2J", gib(80), "uuid"}};
  const auto back = decode_agent_message(encode(AgentMessage(hello)));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<cluster::Hello>(*back).inventory.devices.front().model, "H100\\x1b[2J");
  EXPECT_EQ(std::get<cluster::Hello>(*back).location, "here\\x0a");
}

TEST(Messages, AnEndSaysHowLongAgoItWasAndWhetherItWasAskedFor) {
  cluster::RankReport report{cluster::JobId(1), 2, 3, {cluster::RankState::exited, 143, ""}, 90s};
  report.status.told = cluster::Told::yes;
  auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).ended_ago, 90s);
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status, report.status);
  report.ended_ago = -1h;
  report.status.told = static_cast<cluster::Told>(7);
  back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).ended_ago, 0s);
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status.told, cluster::Told::unknown);
}

TEST(Messages, WhatAProgramWroteNeedNotBeText) {
  const cluster::RankReport report{cluster::JobId(1),
                                   0,
                                   0,
                                   {cluster::RankState::exited, 1,
                                    "a\xff"
                                    "b"}};
  const auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<RankReports>(*back).ranks.at(0).status.detail, "a\uFFFDb");
}

TEST(Submit, RefusesWhatIsOutOfRange) {
  const auto why = [](const std::string& job) {
    const auto specs = decode_submit("{\"jobs\":[" + job + "]}");
    return specs ? "fine" : specs.error().message();
  };
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":1}})"), "fine");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":0}})"), "a gang has at least one rank");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":8,"rank_counts":[8,4]}})"), "fine");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":8,"rank_counts":[4]}})"),
            "rank_counts begins with 4 and ranks is 8: they must be the same");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":8,"rank_counts":[8,4,5]}})"),
            "rank_counts must descend, and 5 comes after 4");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":8,"rank_counts":[8,-1]}})"),
            "a gang has at least one rank");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":100001}})"),
            "a number in the job's shape is out of range");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":1,"gpu_share":-1}})"),
            "a gang cannot need less than nothing");
  EXPECT_EQ(why(R"({"command":[],"shape":{"ranks":1}})"), "a job needs a command");
  EXPECT_EQ(why(R"({"command":["true"],"env":["=x"],"shape":{"ranks":1}})"), "'=x' is not of the form K=V");
  EXPECT_EQ(why(R"({"command":["true"],"shape":{"ranks":1},"time_limit_ms":"-5"})"),
            "a time is out of range");
  EXPECT_NE(why(R"({"command":["true"],"colour":"red"})").find("not the JSON that is expected"),
            std::string::npos);
  EXPECT_NE(why("]").find("not the JSON that is expected"), std::string::npos);
}

TEST(Messages, TravelBothWays) {
  const cluster::Hello hello{"n1",
                             "s/p/r",
                             "10.0.0.1",
                             7,
                             {{{"H100", gib(80), "u", 0}}, 8, gib(1)},
                             {{cluster::JobId(3), 1, 2, {cluster::RankState::exited, 9, "why", true}}}};
  const auto back = decode_agent_message(encode(AgentMessage(hello)));
  ASSERT_TRUE(back.ok()) << back.error().text();
  const auto& same = std::get<cluster::Hello>(*back);
  EXPECT_EQ(same.node, "n1");
  EXPECT_EQ(same.inventory, hello.inventory);
  ASSERT_EQ(same.ranks.size(), 1U);
  EXPECT_EQ(same.ranks[0].status, hello.ranks[0].status);

  StartRanks start;
  start.job = cluster::JobId(3);
  start.command = {"true"};
  start.ranks = {{5, {"RANK=5"}, "out"}};
  const auto started = decode_controller_message(encode(ControllerMessage(start)));
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(std::get<StartRanks>(*started).ranks[0].output, "out");

  const auto ended =
      decode_controller_message(encode(ControllerMessage(EndRanks{cluster::JobId(3), 1, {5, 7}})));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(std::get<EndRanks>(*ended).ranks, (std::vector<std::int32_t>{5, 7}));
  EXPECT_FALSE(std::get<EndRanks>(*ended).at_once);
  const auto killed =
      decode_controller_message(encode(ControllerMessage(EndRanks{cluster::JobId(3), 1, {5}, true})));
  EXPECT_TRUE(std::get<EndRanks>(*killed).at_once);
}

TEST(Messages, BadOnesAreRefused) {
  EXPECT_FALSE(decode_agent_message("").ok());
  EXPECT_FALSE(decode_agent_message("\xff\xff\xff").ok());
  EXPECT_FALSE(decode_controller_message("\xff").ok());
  for (const char* name : {"", "a/b", "..", "-x", "a b", "a\n"}) {
    EXPECT_FALSE(decode_agent_message(encode(AgentMessage(cluster::Hello{name, "", "", 0, {}, {}}))).ok())
        << name;
  }
}

// Else a rank that prints bytes or forges its end would cost its node the connection, again and again.
TEST(Messages, WhatARankHasLeftIsMadeToFit) {
  const cluster::RankReport report{
      cluster::JobId(1), 0, 0, {cluster::RankState::exited, 4711, std::string(detail_bytes_max, '\xff')}};
  const auto back = decode_agent_message(encode(AgentMessage(RankReports{{report}})));
  ASSERT_TRUE(back.ok());
  const cluster::RankStatus& status = std::get<RankReports>(*back).ranks.at(0).status;
  EXPECT_EQ(status.exit_code, 255);
  EXPECT_LE(status.detail.size(), detail_bytes_max);
  EXPECT_TRUE(status.detail.ends_with("\uFFFD"));
  cluster::Hello hello{"n1", "s", "a", 7, {}, {report}};
  EXPECT_TRUE(decode_agent_message(encode(AgentMessage(hello))).ok());
}

// Bytes that were changed on the way are refused or harmless, never a crash.
TEST(Messages, SurviveChangedBytes) {
  Prng prng(5);
  const std::string fine = encode(AgentMessage(cluster::Hello{
      "n1", "s", "a", 7, {{{"H100", gib(80), "u", 0}}, 8, gib(1)}, {{cluster::JobId(3), 1, 2, {}}}}));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = fine;
    for (std::uint64_t change = 0; change <= prng.below(4); ++change)
      bytes[prng.below(bytes.size())] = static_cast<char>(prng.below(256));
    if (prng.chance(0.3)) bytes.resize(prng.below(bytes.size()));
    static_cast<void>(decode_agent_message(bytes));
    static_cast<void>(decode_controller_message(bytes));
  }
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

TEST(Objects, AHundredThousandRanksAreStoredInAFewKilobytes) {
  cluster::Job job = full_job();
  job.places.clear();
  for (int rank = 0; rank < 100'000; ++rank) job.places.push_back({"node" + std::to_string(rank / 50), {}});
  job.ranks.assign(job.places.size(), {});
  job.ranks[77] = {cluster::RankState::exited, 3, "because"};
  const std::string bytes = encode(job);
  EXPECT_LT(bytes.size(), 50'000U);
  cluster::State state;
  ASSERT_TRUE(decode_into(state, asked_key(cluster::JobId(40)), encode_asked(job.spec)).ok());
  ASSERT_TRUE(decode_into(state, job_key(job.id), bytes).ok());
  EXPECT_EQ(state.jobs.at(job.id), job);
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
  EXPECT_EQ(queues_json(state, Instant(1s)),
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
TEST(Queues, KeepTheirLargestPriority) {
  cluster::Queue bounded{"bounded"};
  bounded.priority_max = 0;
  for (const cluster::Queue& queue : {bounded, cluster::Queue{"free"}}) {
    cluster::State state;
    ASSERT_TRUE(decode_into(state, queue_key(queue.name), encode(queue)).ok());
    EXPECT_EQ(state.queues.at(queue.name), queue);
  }
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
