// Programs of PyTorch as jobs.
#include <filesystem>

#include <gtest/gtest.h>

#include "support/cluster.hpp"

namespace tutti {
namespace {

using support::eventually;
using support::has;
using support::lines_of;
using support::PartsCluster;
using support::read_text;
using support::TestCluster;
using support::write_text;

constexpr const char* ddp_script = R"(
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group('gloo')
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)
inputs = torch.randn(64, 4)
targets = inputs.sum(1, keepdim=True)
for step in range(50):
    loss = ((model(inputs) - targets) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
others = [torch.zeros_like(mine) for _ in range(world)]
dist.all_gather(others, mine)
assert all(torch.equal(mine, other) for other in others)
assert loss.item() < 0.1, loss.item()
print('trained by', world)
)";

TEST(Jobs, PytorchTrainsOverTwoNodes) {
  if (support::run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  const TestCluster cluster(2, 2);
  write_text(cluster.file("ddp.py"), ddp_script);
  const auto run =
      cluster.tutti({"run", "--nodes", "2", "--ranks-per-node", "2", "--gpus-per-rank", "1", "--env",
                     "OMP_NUM_THREADS=1", "--", "/usr/bin/python3", cluster.file("ddp.py")});
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(has(run.out, "[" + std::to_string(rank) + "] trained by 4\n")) << run.out;
}

// With a pause in it, so that a node can die in the middle.
TEST(Jobs, TheScriptOfTheReadmeGoesOnFromItsCheckpoint) {
  if (support::run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0)
    GTEST_SKIP() << "python3-torch is not installed";
  const std::string readme = read_text(TUTTI_SOURCE_DIR "/README.md");
  const auto begin = readme.find("# ddp.py");
  ASSERT_NE(begin, std::string::npos);
  std::string script = readme.substr(begin, readme.find("```", begin) - begin);
  const std::string counts = "    step += 1\n";
  ASSERT_NE(script.find(counts), std::string::npos) << script;
  const support::TempFolder shared;
  const std::string reached = shared.path() + "/reached";
  const std::string first = shared.path() + "/first";
  script.replace(script.find(counts), counts.size(),
                 counts + "    if os.environ['TUTTI_ATTEMPT'] == '1' and not os.path.exists('" + first +
                     "'): open('" + first + "', 'w').write(str(step))\n" +
                     "    if os.environ['TUTTI_ATTEMPT'] == '0' and step == 25:\n        open('" + reached +
                     "', 'w'); __import__('time').sleep(600)\n");
  PartsCluster cluster({.data = "",
                        .controller_flags = {},
                        .agent_flags = {"--checkpoints", shared.path() + "/checkpoints"},
                        .gpus = 2});
  ASSERT_TRUE(cluster.start_agent("n1"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  write_text(cluster.file("ddp.py"), script);
  const auto submitted =
      cluster.tutti({"run", "--detach", "--gpus", "4", "--restarts", "10", "--env", "OMP_NUM_THREADS=1", "--",
                     "/usr/bin/python3", cluster.file("ddp.py")});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string job = lines_of(submitted.out).front();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(reached); }));
  cluster.pull_plug("n2");
  ASSERT_TRUE(cluster.node_becomes("n2", "lost"));
  ASSERT_TRUE(cluster.start_agent("n2"));
  EXPECT_EQ(cluster.wait(job), 0) << cluster.log(job, 0);
  EXPECT_EQ(cluster.log(job, 0), "attempt 1 ends at step 50\n");
  EXPECT_EQ(read_text(first), "21");
}

}  // namespace
}  // namespace tutti
