// Training as a user runs it: on a cluster whose servers die.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/prng.hpp"
#include "learn/checkpoint/all_tensors_test.hpp"
#include "learn/checkpoint/folder.hpp"
#include "learn/checkpoint/read.hpp"
#include "support/cluster.hpp"
#include "support/small_disk.hpp"

namespace tutti::support {
namespace {

namespace fs = std::filesystem;

constexpr bool has_worker = TUTTI_HAS_WORKER;

// A cluster with packed data, and recipes on it.
class Training : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_worker) GTEST_SKIP() << "tutti-worker is not built: there is no libtorch";
    PartsOptions options = with_own_address();
    options.gpus = 2;
    cluster_.emplace(std::move(options));
    std::string text;
    for (int line = 0; line < 2000; ++line)
      text += "line " + std::to_string(line * 37 % 101) + " of a text to learn\n";
    write_text(file("text.txt"), text);
    const auto packed =
        cluster_->tutti({"data", "pack", file("text.txt"), "--tokenizer", "bytes", "--out", file("data")});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }

  std::string file(const std::string& name) const { return cluster_->file(name); }

  void start_nodes(std::initializer_list<const char*> names) {
    for (const char* name : names) ASSERT_TRUE(cluster_->start_agent(name)) << name;
  }

  std::string recipe(const std::string& run, const std::string& mesh, int steps,
                     const std::string& more = "") {
    const std::string path = file(run + ".yaml");
    write_text(
        path, "data: " + file("data") + "\nrun: " + file(run) + "\nparallel: " + mesh +
                  "\nlayers: 4\nhidden: 32\nheads: 4\ncontext: 32\nbatch: 8\nwarmup: 5\nlearning_rate: 3e-3\n"
                  "checkpoint_every: 5\nsteps: " +
                  std::to_string(steps) + "\n" + more);
    return path;
  }

  std::string submit(const std::vector<std::string>& words) {
    std::vector<std::string> all{"train", "--detach"};
    all.insert(all.end(), words.begin(), words.end());
    const auto submitted = cluster_->tutti(all);
    EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
    return submitted.out.substr(0, submitted.out.find('\n'));
  }

  std::map<std::int64_t, nlohmann::json> metrics(const std::string& run) {
    std::map<std::int64_t, nlohmann::json> lines;
    for (const std::string& line : lines_of(read_text(file(run) + "/metrics.jsonl"))) {
      const auto value = nlohmann::json::parse(line, nullptr, false);
      if (value.is_discarded()) continue;  // the last one may be half written
      EXPECT_TRUE(lines.emplace(value["step"], value).second) << "a step is there twice: " << line;
    }
    return lines;
  }
  std::size_t steps_done(const std::string& run) {
    return fs::exists(file(run) + "/metrics.jsonl") ? metrics(run).size() : 0;
  }
  bool reaches(const std::string& run, std::size_t steps) {
    return eventually([&] { return steps_done(run) >= steps; }, 120s);
  }

  std::map<std::string, std::vector<float>> weights(const std::string& run, std::int64_t step) {
    return checkpoint::all_tensors(checkpoint::Checkpoint::open(file(run) + "/checkpoints", step));
  }

  void pull_plug(const std::string& node) { cluster_->pull_plug(node); }

  // The width of a model of 64 layers that needs this part of the host's memory: some 12 numbers for each
  // square of it in a layer, and 16 bytes for each of them.
  std::string hidden_for(double part) const {
    const double bytes = part * 1048576.0 * cluster_->node("a").value("memory_mib", 0);
    return std::to_string(static_cast<int>(std::sqrt(bytes / (12 * 16 * 64)) / 64) * 64);
  }

  std::optional<PartsCluster> cluster_;
};

TEST_F(Training, ADeadNodeChangesNoBitOnTheSameMesh) {
  start_nodes({"a", "b"});
  const std::string whole = submit({recipe("whole", "dp2 tp2", 30), "--gpus", "4"});
  ASSERT_EQ(cluster_->wait(whole), 0) << cluster_->log(whole, 0);

  const std::string job = submit({recipe("broken", "dp2 tp2", 30), "--gpus", "4", "--fixed"});
  ASSERT_TRUE(reaches("broken", 12));
  pull_plug("a");
  ASSERT_TRUE(cluster_->node_becomes("a", "lost"));
  ASSERT_TRUE(cluster_->start_agent("a"));
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
  EXPECT_EQ(weights("whole", 30), weights("broken", 30));
  const auto expected = metrics("whole");
  for (const auto& [step, line] : metrics("broken")) {
    EXPECT_EQ(line["loss"], expected.at(step)["loss"]) << step;
    EXPECT_EQ(line["data"], expected.at(step)["data"]) << step;
  }
}

TEST_F(Training, GoesOnWithWhatIsLeft) {
  start_nodes({"a", "b", "c", "d"});
  const std::string whole = submit({recipe("whole", "dp2 tp2 pp2", 24), "--gpus", "8"});
  ASSERT_EQ(cluster_->wait(whole), 0) << cluster_->log(whole, 0);

  const std::string job = submit({recipe("shrunk", "dp2 tp2 pp2", 24, "zero: 1\n"), "--gpus", "8"});
  ASSERT_TRUE(reaches("shrunk", 8));
  // It is written in the background: there may be none yet.
  ASSERT_TRUE(eventually([&] { return fs::exists(file("shrunk") + "/checkpoints/step-00000005"); }));
  const auto before = metrics("shrunk");
  pull_plug("c");
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
  EXPECT_EQ(cluster_->job(job)["attempt"], 1);
  const std::string log = cluster_->log(job, 0);
  const std::string resumed = "resumed at step ";
  ASSERT_NE(log.find(resumed), std::string::npos) << log;
  // It may have been saved just after its last step.
  const int from = std::stoi(log.substr(log.find(resumed) + resumed.size()));
  EXPECT_TRUE(log.find("replayed: ") != std::string::npos || before.rbegin()->first <= from) << log;
  const auto expected = metrics("whole");
  const auto lines = metrics("shrunk");
  EXPECT_EQ(lines.size(), 24U);
  for (const auto& [step, line] : lines) {
    EXPECT_NEAR(line["loss"].get<double>() / expected.at(step)["loss"].get<double>(), 1.0, 1e-4) << step;
    EXPECT_EQ(line["data"], expected.at(step)["data"]) << step;
  }
}

TEST_F(Training, TenRandomKillsLoseNoSampleAndNoBit) {
  start_nodes({"a", "b"});
  const std::string whole = submit({recipe("whole", "dp2 pp2", 80), "--gpus", "4"});
  ASSERT_EQ(cluster_->wait(whole), 0) << cluster_->log(whole, 0);

  const std::string job = submit({recipe("killed", "dp2 pp2", 80), "--gpus", "4", "--fixed"});
  Prng random(2026);
  constexpr int kills = 10;
  for (int kill = 0; kill < kills; ++kill) {
    // Somewhere in the next steps, also before the first checkpoint and while one is written.
    const int attempt = cluster_->job(job).value("attempt", 0);
    ASSERT_TRUE(reaches("killed", std::min<std::size_t>(74, steps_done("killed") + 1 + random.below(9))));
    const std::string node = random.chance(0.5) ? "a" : "b";
    // A process that ends between the look and the kill was not killed: then another one is.
    ASSERT_TRUE(eventually([&] {
      const auto ranks = cluster_->ranks_on(node);
      return !ranks.empty() && ::kill(ranks[random.below(ranks.size())], SIGKILL) == 0;
    })) << cluster_->tutti({"show", job}).out;
    // So many in a row would make it wait for longer each time.
    ASSERT_TRUE(eventually([&] {
      cluster_->tutti({"release", job});
      return cluster_->job(job).value("attempt", 0) > attempt;
    })) << "kill "
        << kill << " hit nothing that the gang needs: " << cluster_->tutti({"show", job}).out;
  }
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->tutti({"show", job}).out << cluster_->log(job, 0);
  EXPECT_GE(cluster_->job(job).value("attempt", 0), kills);
  EXPECT_EQ(weights("whole", 80), weights("killed", 80));
  const auto expected = metrics("whole");
  const auto lines = metrics("killed");
  EXPECT_EQ(lines.size(), 80U);
  for (const auto& [step, line] : lines) EXPECT_EQ(line["data"], expected.at(step)["data"]) << step;
}

// One of them may have been killed before it came: then the others had all of their grace period.
TEST_F(Training, WhoIsAskedToEndBeforeAllHaveMetEnds) {
  start_nodes({"a"});
  const std::string job =
      cluster_->submit({"--ranks", "2", "--restarts", "0", "--grace", "10m"},
                       "[ $RANK = 1 ] && exec sleep 600; echo $MASTER_ADDR/$MASTER_PORT > " + file("hub") +
                           "; exec " + TUTTI_BUILD_DIR "/bin/tutti-worker train " + file("run"));
  ASSERT_TRUE(eventually([&] {
    const std::string hub = read_text(file("hub"));
    return !hub.empty() &&
           run({"bash", "-c", "exec 3<>/dev/tcp/" + hub.substr(0, hub.find('\n'))}).exit_code == 0;
  })) << "until then rank 0 does not wait for the other";
  EXPECT_EQ(cluster_->tutti({"cancel", job}).exit_code, 0);
  EXPECT_TRUE(cluster_->becomes(job, "cancelled")) << cluster_->tutti({"show", job}).out;
}

TEST_F(Training, ADrainedNodeLeavesACheckpointBehind) {
  start_nodes({"a", "b"});
  const std::string job =
      submit({recipe("drained", "dp2", 4000), "--gpus", "2", "--set", "checkpoint_every=100000"});
  ASSERT_TRUE(reaches("drained", 5));
  const std::string node = cluster_->job(job)["nodes"][0];
  ASSERT_EQ(cluster_->tutti({"drain", node, "--now"}).exit_code, 0);
  ASSERT_TRUE(eventually([&] { return cluster_->job(job).value("attempt", 0) == 1; }));
  ASSERT_TRUE(eventually([&] { return cluster_->log(job, 0).find("resumed at step ") != std::string::npos; }))
      << cluster_->log(job, 0);
  ASSERT_EQ(cluster_->tutti({"cancel", job}).exit_code, 0);
  ASSERT_TRUE(cluster_->becomes(job, "cancelled"));
}

// Another program, another language, gradients by autograd: what it computes is what the trainer is to
// compute.
TEST_F(Training, LossesAndGradientsAreThoseOfPytorch) {
  if (run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  // As many samples as a step takes: each step sees all of them, whatever their order.
  constexpr std::size_t batch = 8;
  constexpr std::size_t context = 32;
  constexpr int steps = 5;
  Prng random(7);
  std::string text;
  while (text.size() < batch * context + 1) text += static_cast<char>('a' + random.below(26));
  write_text(file("letters.txt"), text);
  const auto packed = cluster_->tutti(
      {"data", "pack", file("letters.txt"), "--tokenizer", "bytes", "--out", file("letters")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  start_nodes({"a"});
  for (const std::string family : {"gpt2", "llama"}) {
    const std::string config = file(family + ".yaml");
    const std::string model = file(family + ".model");
    write_text(config, "data: " + file("letters") + "\nrun: " + file(family) + "\nmodel: " + model +
                           "\nweights: " + model + "\nparallel: dp2\ncontext: " + std::to_string(context) +
                           "\nbatch: " + std::to_string(batch) + "\nsteps: " + std::to_string(steps) +
                           "\nwarmup: 2\nlearning_rate: 3e-3\nfinal_learning_rate: 3e-4\n"
                           "weight_decay: 0.1\nbeta1: 0.9\nbeta2: 0.95\nclip: 1\nseed: 1\n");
    const auto computed = run({"/usr/bin/python3", TUTTI_SOURCE_DIR "/tests/support/torch_gpt.py", family,
                               config, file("letters.txt")},
                              {.env = {{"OMP_NUM_THREADS", "1"}}});
    ASSERT_EQ(computed.exit_code, 0) << computed.err;
    const auto expected = lines_of(computed.out);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps)) << computed.out;

    const std::string job = submit({config, "--gpus", "2"});
    ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
    const auto lines = metrics(family);
    ASSERT_EQ(lines.size(), expected.size());
    for (const std::string& text_of_step : expected) {
      const auto theirs = nlohmann::json::parse(text_of_step);
      const auto& ours = lines.at(theirs["step"]);
      const auto ratio = [&](const char* key) { return ours[key].get<double>() / theirs[key].get<double>(); };
      // f32 against f64 differ by about 1e-7; another epsilon in a norm, or the other GELU, by 2e-6 and
      // more.
      EXPECT_NEAR(ratio("loss"), 1.0, 1e-6) << family << ours << theirs;
      EXPECT_NEAR(ratio("grad_norm"), 1.0, 1e-6) << family << ours << theirs;
      EXPECT_NEAR(ratio("lr"), 1.0, 1e-12) << family << ours << theirs;
    }
  }
}

TEST(Demo, TellsTheWholeStory) {
  if (!has_worker) GTEST_SKIP() << "tutti-worker is not built: there is no libtorch";
  const auto shown =
      run({"bash", TUTTI_SOURCE_DIR "/tools/demo"},
          {.env = {{"TUTTI_DEMO_STEPS", "60"}, {"TUTTI_DEMO_PROGRAMS", TUTTI_BUILD_DIR "/bin"}},
           .timeout = 280s});
  EXPECT_EQ(shown.exit_code, 0) << shown.out << shown.err;
  for (const char* part :
       {"mesh dp2 tp2 pp2 of 8", "resumed at step ", "replayed: ", "60 of 60", "In one screen"}) {
    EXPECT_NE(shown.out.find(part), std::string::npos) << part << " is not in " << shown.out;
  }
}

TEST_F(Training, ARunIsContinuedOnlyWhenAsked) {
  start_nodes({"a"});
  const std::string config = recipe("again", "1", 10);
  ASSERT_EQ(cluster_->wait(submit({config, "--ranks", "1"})), 0);
  const auto refused = cluster_->tutti({"train", config, "--ranks", "1"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("--resume goes on with it"), std::string::npos) << refused.err;
  // Another model than the checkpoints': refused before anything starts, and nothing is lost.
  const auto other = cluster_->tutti({"train", config, "--ranks", "1", "--resume", "--set", "layers=2"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("another model: layers is 4 there and 2 here"), std::string::npos) << other.err;
  EXPECT_EQ(weights("again", 10).empty(), false);
  ASSERT_EQ(cluster_->wait(submit({config, "--ranks", "1", "--resume", "--steps", "15"})), 0);
  EXPECT_EQ(metrics("again").size(), 15U);
  const auto text = cluster_->tutti(
      {"generate", file("again"), "--prompt", "line ", "--tokens", "5", "--temperature", "0"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("line ")) << text.out;
  const auto complete = cluster_->tutti({"train", config, "--ranks", "1", "--resume", "--steps", "15"});
  EXPECT_EQ(complete.exit_code, 0) << complete.err;
  EXPECT_NE(complete.err.find("the run is complete, step 15 of 15"), std::string::npos) << complete.err;
  // The folder of a last checkpoint that is damaged completes nothing.
  std::ofstream(file("again") + "/checkpoints/step-00000015/manifest.json") << "damaged";
  const std::string mending = submit({config, "--ranks", "1", "--resume", "--steps", "15"});
  ASSERT_EQ(cluster_->wait(mending), 0) << cluster_->log(mending, 0);
  EXPECT_TRUE(fs::exists(file("again") + "/checkpoints/step-00000015.damaged-1"));
  EXPECT_EQ(weights("again", 15).empty(), false);
  // One step of it goes by the run's name, and the tokenizer of its data goes along.
  const auto step = cluster_->tutti({"generate", file("again") + "/checkpoints/step-00000010", "--prompt",
                                     "line ", "--tokens", "5", "--json"});
  EXPECT_EQ(nlohmann::json::parse(step.out, nullptr, false).value("model", ""), "again") << step.err;
  const auto exported = cluster_->tutti({"checkpoint", "export", file("again"), "--out", file("exported")});
  EXPECT_EQ(exported.err, "");
  EXPECT_TRUE(fs::exists(file("exported") + "/tokenizer.json"));
}

TEST_F(Training, BeginsAnewWhenToldAndKeepsWhatThereWas) {
  start_nodes({"a"});
  const std::string config = recipe("anew", "1", 10);
  ASSERT_EQ(cluster_->wait(submit({config, "--ranks", "1"})), 0);
  const std::string job = submit({config, "--ranks", "1", "--from-scratch", "--set", "layers=2"});
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
  EXPECT_EQ(metrics("anew").size(), 10U);
  EXPECT_NE(cluster_->log(job, 0).find("what the run had is in "), std::string::npos);
  const std::string fresh = submit({recipe("fresh", "1", 5), "--ranks", "1", "--from-scratch"});
  ASSERT_EQ(cluster_->wait(fresh), 0) << cluster_->log(fresh, 0);
  EXPECT_EQ(cluster_->log(fresh, 0).find("what the run had"), std::string::npos) << "it had nothing";
  const auto old = checkpoint::steps_in(file("anew") + "/checkpoints.old-1");
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(old->back(), 10);
  EXPECT_TRUE(fs::exists(file("anew") + "/metrics.jsonl.old-1"));
  // Checkpoints that have gone are no reason to begin anew in silence.
  fs::rename(file("anew") + "/checkpoints", file("anew") + "/elsewhere");
  const auto gone = cluster_->tutti({"train", config, "--ranks", "1", "--set", "layers=2"});
  EXPECT_EQ(gone.exit_code, 2);
  EXPECT_NE(gone.err.find("the run had a checkpoint of step 10"), std::string::npos) << gone.err;
}

// The attempts of one job are not those of the next.
TEST_F(Training, ARunWhoseJobWasRestartedIsResumedByTheNextJob) {
  start_nodes({"a"});
  const std::string config = recipe("restarted", "dp2", 40);
  const std::string job = submit({config, "--gpus", "2"});
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_TRUE(reaches("restarted", 5 + 5 * static_cast<std::size_t>(attempt)));
    ASSERT_TRUE(eventually([&] {
      const auto ranks = cluster_->ranks_on("a");
      return !ranks.empty() && ::kill(ranks.back(), SIGKILL) == 0;
    }));
    ASSERT_TRUE(eventually([&] { return cluster_->job(job).value("attempt", 0) > attempt; }));
  }
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
  const std::string next = submit({config, "--gpus", "2", "--resume", "--steps", "50"});
  ASSERT_EQ(cluster_->wait(next), 0) << cluster_->log(next, 0);
  EXPECT_EQ(metrics("restarted").size(), 50U);
}

TEST_F(Training, TheSecondInAFolderIsRefusedByName) {
  start_nodes({"a"});
  // Both wait for the node: nobody owns the folder yet, and the ranks find out which of the two may.
  ASSERT_EQ(cluster_->tutti({"drain", "a"}).exit_code, 0);
  const std::string first = submit({recipe("shared", "1", 4000), "--ranks", "1"});
  const std::string second =
      submit({recipe("shared", "1", 4000), "--ranks", "1", "--from-scratch", "--set", "learning_rate=1e-5"});
  ASSERT_EQ(cluster_->tutti({"resume", "a"}).exit_code, 0);
  ASSERT_TRUE(eventually(
      [&] { return cluster_->state(first) == "failed" || cluster_->state(second) == "failed"; }, 60s));
  const bool first_lost = cluster_->state(first) == "failed";
  const std::string owner = first_lost ? second : first;
  const std::string loser = first_lost ? first : second;
  EXPECT_EQ(cluster_->job(loser)["attempt"], 0) << "another attempt would be refused too";
  EXPECT_NE(
      cluster_->log(loser, 0).find("job " + owner + " (attempt 0, on node a) trains in this folder since"),
      std::string::npos)
      << cluster_->log(loser, 0);
  ASSERT_TRUE(reaches("shared", 20));
  const auto third = cluster_->tutti({"train", recipe("shared", "1", 4000), "--ranks", "1", "--resume"});
  EXPECT_EQ(third.exit_code, 2) << third.out;
  EXPECT_NE(third.err.find("job " + owner + " (attempt 0, on node a) trains in this folder since"),
            std::string::npos)
      << third.err;
  ASSERT_EQ(cluster_->tutti({"cancel", owner}).exit_code, 0);
  ASSERT_TRUE(cluster_->becomes(owner, "cancelled"));
  metrics("shared");  // no step is there twice
}

// Needs no worker: nothing of it is ever started.
TEST(TrainingFolder, IsRefusedWhenItHoldsWhatIsNoRun) {
  const TestCluster cluster(1, 0);
  const auto things_in = [&](const std::string& name) {
    return std::distance(fs::directory_iterator(cluster.file(name)), fs::directory_iterator());
  };
  write_text(cluster.file("text.txt"), std::string(10'000, 'x'));
  const auto packed = cluster.tutti(
      {"data", "pack", cluster.file("text.txt"), "--tokenizer", "bytes", "--out", cluster.file("data")});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  write_text(cluster.file("recipe.yaml"),
             "data: " + cluster.file("data") + "\nlayers: 1\nhidden: 8\nheads: 1\ncontext: 8\nbatch: 1\n");
  const auto train = [&](const std::string& run) {
    return cluster.tutti({"train", cluster.file("recipe.yaml"), "--ranks", "1", "--detach", "--queue", "away",
                          "--set", "run=" + cluster.file(run)});
  };
  const auto expect_refused = [&](const std::string& run, const std::string& part) {
    const auto done = train(run);
    EXPECT_EQ(done.exit_code, 2) << run << done.err;
    EXPECT_TRUE(has(done.err, part)) << done.err;
  };
  fs::create_directories(cluster.file("mine"));
  write_text(cluster.file("mine/config.json"), "mine");
  expect_refused("mine", "the folder is no run of a training, and holds 'config.json'");
  EXPECT_EQ(read_text(cluster.file("mine/config.json")), "mine");
  EXPECT_EQ(things_in("mine"), 1);
  const auto of_data = things_in("data");
  expect_refused("data", "the folder of the run lies in that of the dataset");
  expect_refused("data/run", "the folder of the run lies in that of the dataset");
  EXPECT_EQ(things_in("data"), of_data);
  // An empty one, and then what the first submission made of it.
  fs::create_directories(cluster.file("empty"));
  for (int time = 0; time < 2; ++time) {
    const auto done = train("empty");
    EXPECT_FALSE(has(done.err, "is no run")) << done.err;
    EXPECT_GE(things_in("empty"), 1);
  }
}

TEST_F(Training, ARunThatDivergesEndsOnceAndForAll) {
  start_nodes({"a"});
  const std::string job =
      submit({recipe("diverges", "dp2", 4000, "bad_steps_max: 3\nclip: 0\n"), "--gpus", "2", "--set",
              "learning_rate=900", "--set", "weight_decay=900", "--set", "warmup=0"});
  EXPECT_EQ(cluster_->wait(job), 78) << cluster_->log(job, 0);
  EXPECT_EQ(cluster_->job(job)["attempt"], 0) << "the next one would end the same way";
  EXPECT_NE(cluster_->log(job, 0).find("not finite in 3 steps in a row"), std::string::npos)
      << cluster_->log(job, 0);
}

TEST_F(Training, OnNodesOfSeveralSizesThereIsOneMeshAndNoLayerIsCutAcrossThem) {
  cluster_->set_gpus(6);
  start_nodes({"a"});
  cluster_->set_gpus(2);
  start_nodes({"b"});
  const std::string pairs = submit({recipe("pairs", "dp4 tp2", 4), "--gpus", "8"});
  ASSERT_EQ(cluster_->wait(pairs), 0) << cluster_->log(pairs, 0);
  EXPECT_NE(cluster_->log(pairs, 0).find("mesh dp4 tp2 of 8"), std::string::npos) << cluster_->log(pairs, 0);
  const auto fours = cluster_->tutti({"train", recipe("fours", "dp2 tp4", 4), "--gpus", "8"});
  EXPECT_EQ(fours.exit_code, 2) << fours.out;
  EXPECT_NE(fours.err.find("tp4 needs groups of 4 ranks on one node, and the nodes have "), std::string::npos)
      << fours.err;
  // Four of the six fit on one node, and are put there.
  const std::string four = submit({recipe("four", "tp4", 4), "--gpus", "4"});
  ASSERT_EQ(cluster_->wait(four), 0) << cluster_->log(four, 0);
  EXPECT_EQ(cluster_->job(four)["nodes"], nlohmann::json::array({"a"}));
}

TEST_F(Training, AFullDiskIsToldAndNothingOfTheRunIsLost) {
  const SmallDisk disk(file("full"), 16);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  start_nodes({"a"});
  const std::string config = recipe("full", "1", 4000, "checkpoints_kept: 2\n");
  const std::string job = submit({config, "--ranks", "1"});
  ASSERT_TRUE(reaches("full", 20));
  EXPECT_TRUE(eventually([&] {
    disk.fill();  // again and again: an old checkpoint that goes makes room for another one
    return cluster_->log(job, 0).find("No space left on device") != std::string::npos;
  })) << cluster_->log(job, 0);
  // It would try again, later and later.
  EXPECT_EQ(cluster_->tutti({"cancel", job}).exit_code, 0);
  EXPECT_NE(cluster_->wait(job), 0);
  disk.empty();
  // It goes on from the last checkpoint that is whole.
  const auto steps = checkpoint::steps_in(file("full") + "/checkpoints");
  ASSERT_TRUE(steps.ok() && !steps->empty());
  const std::int64_t last = steps->back() + 10;
  ASSERT_EQ(cluster_->wait(submit({config, "--ranks", "1", "--resume", "--steps", std::to_string(last)})), 0);
  EXPECT_EQ(static_cast<std::int64_t>(metrics("full").size()), last);
}

TEST_F(Training, ALastCheckpointThatDoesNotFitIsWaitedForAndNothingIsTrainedTwice) {
  constexpr int disk_mib = 16;
  const SmallDisk disk(file("disk"), disk_mib);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  start_nodes({"a"});
  // Room for its metrics, and for no checkpoint; the last one is the only one.
  const std::string filler = file("disk/filler");
  write_text(filler, std::string((disk_mib << 20) - (512 << 10), 'x'));
  const std::string job =
      submit({recipe("disk/last", "1", 100), "--ranks", "1", "--set", "checkpoint_every=100"});
  const auto shown = [&] { return cluster_->tutti({"show", job}).out; };
  EXPECT_TRUE(eventually(
      [&] {
        const std::string text = shown();
        return text.find("the last checkpoint of step 100") != std::string::npos &&
               text.find("No space left on device") != std::string::npos &&
               text.find("it is missing in " + file("disk/last/checkpoints")) != std::string::npos;
      },
      120s))
      << shown() << cluster_->log(job, 0);
  EXPECT_EQ(cluster_->job(job)["attempt"], 0);
  fs::remove(filler);
  ASSERT_EQ(cluster_->wait(job), 0) << cluster_->log(job, 0);
  EXPECT_EQ(cluster_->job(job)["attempt"], 0);
  EXPECT_EQ(checkpoint::steps_in(file("disk/last/checkpoints")).value().back(), 100);
  EXPECT_EQ(metrics("disk/last").size(), 100U);
}

// Ranks on GPUs that are not there compute on the host, and both nodes are on one.
TEST_F(Training, FakeGpusHaveTheMemoryOfTheHost) {
  start_nodes({"a", "b"});
  const auto too_large =
      cluster_->tutti({"train", recipe("large", "auto", 10), "--gpus", "4", "--set", "model=llama", "--set",
                       "layers=64", "--set", "hidden=" + hidden_for(1.5), "--set", "heads=8"});
  EXPECT_EQ(too_large.exit_code, 2) << too_large.out;
  EXPECT_NE(too_large.err.find("no mesh of 4 ranks would fit"), std::string::npos) << too_large.err;
}

TEST_F(Training, SaysWhatIsWrongBeforeItStarts) {
  start_nodes({"a"});
  const auto refused = [&](const std::vector<std::string>& words, const std::string& why) {
    std::vector<std::string> all{"train"};
    all.insert(all.end(), words.begin(), words.end());
    const auto finished = cluster_->tutti(all);
    EXPECT_NE(finished.exit_code, 0) << finished.out;
    EXPECT_NE(finished.err.find(why), std::string::npos) << finished.err;
  };
  const std::string config = recipe("wrong", "auto", 10);
  refused({}, "CONFIG is missing");
  refused({file("missing.yaml")}, "missing.yaml");
  refused({config, "--ranks", "1", "--set", "learning_rte=1"}, "learning_rate");
  refused({config, "--ranks", "1", "--set", "steps=0"}, "steps");
  refused({config, "--ranks", "1", "--set", "precision=f8"}, "f32 or bf16");
  refused({config, "--ranks", "3", "--set", "parallel=dp2"}, "ranks");
  refused({config, "--ranks", "7"}, "batch of 8");
  refused({config, "--ranks", "1", "--set", "data=" + file("nowhere")}, "nowhere");
  refused({config, "--gpus", "1", "--ranks", "1"}, "exclude");
  refused({config, "--ranks", "1", "--resume"}, "no checkpoint");
  // A model that no rank here can hold as a whole, with what would fit.
  refused({config, "--ranks", "8", "--set", "model=llama", "--set", "layers=64", "--set",
           "hidden=" + hidden_for(0.25), "--set", "heads=8", "--set", "parallel=dp8"},
          "this would fit: parallel: ");
  // Nor any host: a terabyte of optimizer state.
  refused({config, "--ranks", "1", "--set", "model=llama", "--set", "layers=80", "--set", "hidden=8192",
           "--set", "heads=64"},
          "GiB optimizer");
  EXPECT_FALSE(fs::exists(file("wrong") + "/recipe.json"));
}

}  // namespace
}  // namespace tutti::support
