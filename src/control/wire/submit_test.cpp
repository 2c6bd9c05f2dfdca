#include <map>

#include <gtest/gtest.h>

#include "control/wire/full_test.hpp"
#include "control/wire/json.hpp"
#include "control/wire/replies.hpp"
#include "control/wire/requests.hpp"

namespace tutti::wire {
namespace {

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
  const auto submit = decode_submit(R"({"jobs":[{"command":["/usr/bin/prog+","x"]}]})");
  ASSERT_TRUE(submit.ok()) << submit.error().text();
  const cluster::JobSpec& spec = submit->specs.front();
  EXPECT_EQ(spec.grace, 10s);
  EXPECT_EQ(spec.restarts, 3);
  EXPECT_EQ(spec.restart_on_failure, 0);
  EXPECT_EQ(spec.shape.ranks, 1);
  EXPECT_EQ(spec.queue, "default");
  EXPECT_EQ(spec.user, "unnamed");
  EXPECT_EQ(spec.name, "prog_");
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

// What a shell is to do may stand in one word, with all that nobody else is to know.
TEST(Submit, ANameIsTheFirstWordOfTheCommandAndNothingThatIsSet) {
  const auto name_of = [](const std::string& command) {
    const auto submit = decode_submit(R"({"jobs":[{"command":[")" + command + R"("]}]})");
    EXPECT_TRUE(submit.ok());
    return submit.ok() ? submit->specs.front().name : "";
  };
  EXPECT_EQ(name_of("/bin/sh -c 'curl -H token:hunter3 x'"), "sh");
  EXPECT_EQ(name_of("PASSWORD=hunter2 /opt/run"), "job");
  EXPECT_EQ(name_of("PASSWORD=/hunter2"), "job");
  EXPECT_EQ(name_of("train;hunter"), "train");
  EXPECT_EQ(name_of(" "), "job");
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

TEST(Submit, MoreJobsThanAnArrayMayHaveAreRefusedBeforeTheyAreMade) {
  std::string jobs = "{}";
  for (int job = 0; job < cluster::array_elements_max; ++job) jobs += ",{}";
  const auto refused = decode_submit("{\"jobs\":[" + jobs + "]}");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().text().find("at most 10000 elements"), std::string::npos)
      << refused.error().text();
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

}  // namespace
}  // namespace tutti::wire
