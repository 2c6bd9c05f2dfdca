#include "control/cluster/limits.hpp"

#include "control/cluster/cluster_test.hpp"

namespace tutti::cluster {
namespace {

std::string why_not(const JobSpec& wanted) {
  const auto checked = check_limits(wanted);
  return checked ? "" : checked.error().text();
}

// A job that is at the limit, and the same one beyond it.
template <class Value, class Set>
void expect_limit(const Value& most, const Value& more, const std::string& context, Set set) {
  SCOPED_TRACE(context);
  JobSpec wanted = spec(1);
  set(wanted, most);
  EXPECT_EQ(why_not(wanted), "");
  set(wanted, more);
  EXPECT_TRUE(why_not(wanted).starts_with(context + " : ")) << why_not(wanted);
}

std::string letters(std::size_t count) { return std::string(count, 'x'); }

TEST(Limits, OfTexts) {
  expect_limit(letters(job_name_bytes_max), letters(job_name_bytes_max + 1), "name",
               [](JobSpec& job, const auto& text) { job.name = text; });
  expect_limit(letters(user_bytes_max), letters(user_bytes_max + 1), "user",
               [](JobSpec& job, const auto& text) { job.user = text; });
  expect_limit(letters(5), std::string("\x1b[2J"), "user",
               [](JobSpec& job, const auto& text) { job.user = text; });
  expect_limit(letters(queue_name_max), letters(queue_name_max + 1), "queue",
               [](JobSpec& job, const auto& text) { job.queue = text; });
  expect_limit("/" + letters(path_bytes_max - 1), "/" + letters(path_bytes_max), "workdir",
               [](JobSpec& job, const auto& text) { job.workdir = text; });
  expect_limit(std::string("/data"), std::string("."), "workdir",
               [](JobSpec& job, const auto& text) { job.workdir = text; });
  expect_limit(letters(path_bytes_max), letters(path_bytes_max + 1), "output",
               [](JobSpec& job, const auto& text) { job.output = text; });
  expect_limit(letters(gpu_models_bytes_max), letters(gpu_models_bytes_max + 1), "gpu-model",
               [](JobSpec& job, const auto& text) { job.shape.gpu_model = text; });
  expect_limit(std::string(manifest_hash_bytes, 'a'), std::string("../../etc/passwd"), "sync",
               [](JobSpec& job, const auto& text) { job.sync = text; });
}

TEST(Limits, OfCommandsAndEnvironments) {
  using Words = std::vector<std::string>;
  const auto command = [](JobSpec& job, const Words& words) { job.command = words; };
  expect_limit(Words(command_words_max, "x"), Words(command_words_max + 1, "x"), "command", command);
  expect_limit(Words{letters(command_word_bytes_max)}, Words{letters(command_word_bytes_max + 1)}, "command",
               command);
  const std::size_t eighth = command_bytes_max / 16;
  expect_limit(Words(16, letters(eighth - 1)), Words(16, letters(eighth)), "command", command);
  const auto env = [](JobSpec& job, const Words& words) { job.env = words; };
  expect_limit(Words(env_entries_max, "K=V"), Words(env_entries_max + 1, "K=V"), "env", env);
  expect_limit(Words{"K=" + letters(env_bytes_max - 3)}, Words{"K=" + letters(env_bytes_max - 2)}, "env",
               env);
  for (const char* entry : {"", "=", "=x", "1K=V", "K-L=V", "K"})
    expect_limit(Words{"K_1="}, Words{entry}, "env", env);
}

TEST(Limits, OfNumbers) {
  const auto set_priority = [](JobSpec& job, std::int32_t number) { job.priority = number; };
  expect_limit(priority_max, priority_max + 1, "priority", set_priority);
  expect_limit(-priority_max, -priority_max - 1, "priority", set_priority);
  const auto set_restarts = [](JobSpec& job, std::int32_t number) { job.restarts = number; };
  expect_limit(restarts_max, restarts_max + 1, "restarts", set_restarts);
  expect_limit(0, -1, "restarts", set_restarts);
  expect_limit(restarts_max, restarts_max + 1, "restart-on-failure",
               [](JobSpec& job, std::int32_t number) { job.restart_on_failure = number; });
  expect_limit(cpus_per_rank_max, cpus_per_rank_max + 1, "cpus-per-rank",
               [](JobSpec& job, std::int32_t number) { job.shape.cpus = number; });
  expect_limit(memory_per_rank_max, memory_per_rank_max + Bytes(1), "memory-per-rank",
               [](JobSpec& job, Bytes bytes) { job.shape.memory = bytes; });
  expect_limit(time_limit_max, time_limit_max + 1s, "time",
               [](JobSpec& job, Duration time) { job.time_limit = time; });
  expect_limit(grace_max, grace_max + 1s, "grace", [](JobSpec& job, Duration time) { job.grace = time; });
  expect_limit(array_index_max, array_index_max + 1, "array", [](JobSpec& job, std::int32_t index) {
    job.array = ArrayPart{JobId(), index, 1, 0};
  });
  expect_limit(dependencies_max, dependencies_max + 1, "after", [](JobSpec& job, std::size_t count) {
    job.after = std::vector<Dependency>(count, {JobId(1), false});
  });
}

TEST(Limits, OfSubmitKeys) {
  EXPECT_TRUE(check_submit_key("").ok());
  EXPECT_TRUE(check_submit_key(letters(submit_key_bytes_max)).ok());
  EXPECT_FALSE(check_submit_key(letters(submit_key_bytes_max + 1)).ok());
  EXPECT_FALSE(check_submit_key("a b").ok());
}

}  // namespace
}  // namespace tutti::cluster
