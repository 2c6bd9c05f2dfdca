#include <array>

#include "cli/commands.hpp"

namespace tutti::cli {

std::span<const CommandEntry> commands() {
  static const std::array table{
      CommandEntry{"up", "[flags]",
                   "Starts a local cluster on this machine and returns when every node is ready.", make_up},
      CommandEntry{"down", "[flags]", "Ends the local cluster and every process it made.", make_down},
      CommandEntry{"local", "ACTION NODE", "Pulls the plug on a local node, or plugs it in again.",
                   make_local},
      CommandEntry{"run", "[flags] -- COMMAND [ARGS]",
                   "Submits a job, streams its logs and exits with its exit code.", make_run},
      CommandEntry{"submit", "FILE [ARGS]", "Submits a job file or script and prints the job's id.",
                   make_submit},
      CommandEntry{
          "jobs", "[archive] [flags]",
          "Lists jobs, or puts finished ones away into a file.\n\n"
          "A cluster keeps finished jobs for a while, as `tutti status` tells. To keep them for longer:\n\n"
          "  tutti jobs archive --older-than 7d --out jobs.jsonl",
          make_jobs},
      CommandEntry{"show", "JOB", "Shows one job: why it waits, where it runs, why it failed.", make_show},
      CommandEntry{
          "explain", "JOB [flags]",
          "Explains why a job waits, when it will start, and what would start it sooner.\n\n"
          "Each answer is the scheduler's own, tried on a copy of the cluster as it is now; jobs that are "
          "still to come are not in it. `tutti run --dry-run` answers the same before you submit.",
          make_explain},
      CommandEntry{"logs", "JOB [flags]", "Prints the logs of a job's ranks.", make_logs},
      CommandEntry{"wait", "JOB… [flags]", "Waits for jobs to end.", make_wait},
      CommandEntry{"cancel", "JOB… [flags]",
                   "Ends jobs: SIGTERM, and SIGKILL after the grace period; --now kills at once.",
                   make_cancel},
      CommandEntry{"release", "JOB… [flags]",
                   "Lets jobs start again that are held because nodes were lost in their attempts, or that "
                   "wait after bad ends.",
                   make_release},
      CommandEntry{"status", "[flags]", "Shows the cluster in a few numbers.", make_status},
      CommandEntry{
          "nodes", "[remove NODE|revoke NODE|token|tokens] [flags]",
          "Lists nodes and their devices; forgets one, sends one away, lets servers join.\n\n"
          "`token` prints the line that makes a server a node, once. A node that is revoked is lost at once, "
          "and its certificate is worthless; with a new token it may join again:\n\n"
          "  tutti nodes token --uses 4 --expires 10m --name-pattern 'gpu-*'\n"
          "  tutti nodes tokens revoke 4f1c09d2a7be\n"
          "  tutti nodes revoke gpu-17",
          make_nodes},
      CommandEntry{
          "queues", "[set NAME|rm NAME] [flags]",
          "Shows queues and who uses what; creates, changes and removes them.\n\n"
          "A queue may use what others leave: GPUs beyond its guarantee are borrowed, and go back when those "
          "to whom they are guaranteed need them. What nobody is guaranteed is shared by weight, and what a "
          "queue or user had lately counts against it. Numbers of a queue include those of its parts. What "
          "`set` does not name stays as it is:\n\n"
          "  tutti queues set research --guarantee 8 --limit 16\n"
          "  tutti queues set research/vision --guarantee 4 --user-limit 2\n"
          "  tutti run --queue research/vision --gpus 2 -- python3 train.py",
          make_queues},
      CommandEntry{"users", "[set|block|unblock|remove NAME] [flags]",
                   "Shows who may use the cluster, lets people in and shuts them out.\n\n"
                   "A role holds in a queue and in all its parts. Each may what those before it may:\n\n"
                   "  viewer       sees the queue, its jobs and their logs\n"
                   "  user         submits jobs, and ends his own\n"
                   "  queue-admin  ends those of others, shapes the parts of the queue, lets people in\n"
                   "  operator     of the whole cluster: nodes, and every queue\n"
                   "  admin        of the whole cluster: users and their tokens\n\n"
                   "Nobody gives what he has not, and nobody changes whoever has more than he could give:\n\n"
                   "  tutti users set ada --role user:research/vision --role viewer:production\n"
                   "  tutti tokens create --user ada --out ada.token",
                   make_users},
      CommandEntry{"tokens", "[create|revoke ID] [flags]",
                   "Makes, shows and revokes the tokens with which people and programs use the cluster.\n\n"
                   "Whoever has a token acts as its user. It is shown once, when it is made, and the cluster "
                   "keeps its "
                   "hash alone; one that is revoked opens nothing from then on. A token makes none that may "
                   "more, or lives "
                   "longer, than itself:\n\n"
                   "  tutti tokens create --role viewer --queue research --expires 30d --for dashboard\n"
                   "  TUTTI_ADDR=cluster:7070 TUTTI_TOKEN_FILE=ada.token tutti jobs",
                   make_tokens},
      CommandEntry{"whoami", "[flags]", "Tells whose token you use, and what it may.", make_whoami},
      CommandEntry{
          "secret", "[set NAME|ls|rm NAME|rotate-key] [flags]",
          "Keeps what jobs need and nobody is to read: keys, passwords, tokens.\n\n"
          "A value comes from stdin or from a file, and no command shows it again. It is sealed in the "
          "store; "
          "a job that asks for it by its name finds it as a file in memory, readable by its user alone, in "
          "the "
          "folder that TUTTI_SECRETS names. Your own come before those of the job's queue, and those before "
          "those of the queues above it:\n\n"
          "  tutti secret set HF_TOKEN < token.txt\n"
          "  tutti secret set WANDB_KEY --queue research --file key.txt\n"
          "  tutti run --secret HF_TOKEN -- sh -c 'login --token-file \"$TUTTI_SECRETS/HF_TOKEN\"'\n\n"
          "`rotate-key` makes another key for the cluster; all secrets are sealed anew, and the old key "
          "goes.",
          make_secret},
      CommandEntry{
          "audit", "[flags]",
          "Tells who changed what, from where, and who was refused what.\n\n"
          "The log is a chain: each line has the hash of the one before it, so that none can be changed, "
          "removed "
          "or put in between without breaking it. --verify looks at all that is kept, and prints how far the "
          "log goes; whoever notes that elsewhere can be sure later that it is still the same log:\n\n"
          "  tutti audit --since 7d --user ada\n"
          "  tutti audit --verify\n"
          "  tutti audit --verify --head 1204:9f2c…\n"
          "  tutti audit --verify --file /backup/audit-*/audit-*.jsonl",
          make_audit},
      CommandEntry{"drain", "NODE [flags]", "Lets nothing new land on a node.", make_drain},
      CommandEntry{"resume", "NODE", "Lets a drained node take work again.", make_resume},
      CommandEntry{
          "login", "[flags]",
          "Logs in at the issuer (OpenID Connect) of a cluster, and keeps the token for later commands.\n\n"
          "TUTTI_ADDR names the cluster. With a display a browser on this machine brings the answer back; "
          "without one, or with --device, a code is shown that is typed in at any other machine. The token "
          "of the cluster is kept for its address, in ~/.config/tutti, for you alone; every command finds it "
          "there unless TUTTI_TOKEN_FILE names another one:\n\n"
          "  export TUTTI_ADDR=tutti.example.org:7070 TUTTI_CA_FILE=/etc/tutti/ca.pem\n"
          "  tutti login --device\n"
          "  tutti status",
          make_login},
      CommandEntry{"logout", "", "Removes the token that `tutti login` has kept.", make_logout},
      CommandEntry{
          "train", "CONFIG [flags]",
          "Trains a language model on the cluster, and goes on when servers die.\n\n"
          "Without --gpus and --ranks it takes the ranks of the recipe's mesh, or every GPU of the cluster. "
          "The run's "
          "folder holds the recipe, metrics.jsonl and the checkpoints; all nodes must reach it and the data.",
          make_train},
      CommandEntry{
          "engine", "MODEL [flags]",
          "Lets a model answer over HTTP, as OpenAI's API or the Open Inference Protocol has it.\n\n"
          "MODEL is the folder of a run, or one of Hugging Face with config.json, tokenizer.json and "
          "safetensors. All memory is reserved at the start. Without a key it listens on this machine "
          "alone:\n\n"
          "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\":\"Once upon\",\"max_tokens\":32}'\n\n"
          "Or it is a TorchScript archive, mlp.pt: tensors in, tensors out. mlp.json beside it names them, "
          "their "
          "types and shapes. Its code is run: it is trusted as a program is.\n\n"
          "  tutti engine mlp.pt --max-batch 32 --max-delay 2ms\n"
          "  curl http://127.0.0.1:8000/v2/models/mlp/infer -d "
          "'{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1,2]}]}'",
          make_engine},
      CommandEntry{
          "serve", "MODEL|update NAME MODEL|scale NAME|promote NAME|rollback NAME|stop NAME [flags]",
          "Makes a model a service of the cluster: replicas that answer behind a gateway, as many as it "
          "takes.\n\n"
          "Each replica is a job that runs `tutti engine`. One that ends is started again; more come when "
          "requests wait, and with --replicas 0:N none is left when nobody asks: the next request wakes one. "
          "A new version takes the place of the old one replica by replica, without a request that fails; as "
          "a "
          "canary it gets a part of the requests first, and is promoted or rolled back by how it does:\n\n"
          "  tutti serve runs/small --name chat --replicas 1:4\n"
          "  tutti serve update chat runs/better --canary 10%\n"
          "  tutti serve promote chat\n"
          "  tutti serve stop chat\n\n"
          "What it was promoted or rolled back for stands in `tutti show NAME`.",
          make_serve},
      CommandEntry{"services", "[flags]",
                   "Lists services: what they serve, how many replicas answer, and what is under way.",
                   make_services},
      CommandEntry{
          "gateway", "[--backend URL…] [flags]",
          "Stands before several engines as if they were one: those that are named, or the replicas of the "
          "cluster's services.\n\n"
          "A request goes to whoever serves its model and can begin with it soonest. Where an engine cannot "
          "be "
          "reached, is full or dies, another one is asked; one that dies in the middle of a stream is "
          "followed "
          "by another one, and the client reads one stream. Other servers of OpenAI's API may stand among "
          "them:\n\n"
          "  tutti gateway --backend http://127.0.0.1:8000 --backend http://127.0.0.1:8001\n"
          "  curl http://127.0.0.1:8080/v1/models\n"
          "  tutti chat http://127.0.0.1:8080",
          make_gateway},
      CommandEntry{"chat", "[URL|MODEL] [flags]",
                   "Talks with a model at the terminal: one behind a URL, or one of your own.", make_chat},
      CommandEntry{"generate", "MODEL [flags]", "Writes text with the model of a run or of a folder.",
                   make_generate},
      CommandEntry{
          "data", "pack|tokenizer|show PATH… [flags]",
          "Turns text into datasets for training, and shows what is in them.\n\n"
          "Each file of text is one document. A tokenizer.json may be any byte-level BPE, such as those "
          "of GPT-2, Llama 3 and Qwen2; files that are not UTF-8 are left out and counted.",
          make_data},
      CommandEntry{
          "checkpoint", "ls|verify|export DIR [flags]",
          "Shows what a training has saved, proves that it is sound, and exports it.\n\n"
          "verify reads every byte and compares it with the hash that was noted when it was written. export "
          "writes config.json and model.safetensors, which the libraries of Hugging Face load.",
          make_checkpoint},
      CommandEntry{
          "fabric", "[flags]",
          "Measures the network between every pair of nodes, and finds slow links.\n\n"
          "A gang with one rank on each ready node measures all pairs in turns: latency, and bandwidth "
          "each way. The cluster keeps the result. A link is slow with less than 70% of the bandwidth, "
          "or more than 3 times the latency, of the links around it. Other traffic shows in the "
          "numbers.",
          make_fabric},
      CommandEntry{
          "bench", "comm|fabric|serve [URL] [flags]",
          "Measures the collectives here, beside the machine's own limit; or how fast a server answers.",
          make_bench},
      CommandEntry{"record", "[flags]",
                   "Writes what the cluster was asked to do, and how long it took, as a trace.\n\n"
                   "One line for each job that has run and ended. The queue of a job is its partition there; "
                   "`tutti sim run` "
                   "replays the trace on other machines or with another policy.",
                   make_record},
      CommandEntry{
          "sim", "run|saturate|scale|chaos [flags]",
          "Runs the cluster on virtual time, without a server.\n\n"
          "run replays a trace of jobs with the state machine and the policies of the controller. saturate "
          "fills "
          "a cluster with tasks until nothing fits any more. scale times the scheduler. "
          "chaos lets everything fail: connections, nodes, agents, ranks, the controller, its disk and its "
          "clock, "
          "and checks after each step that no promise is broken; then the faults stop, and everything that "
          "was "
          "accepted must finish. One seed is one history: a failure prints the seed that shows it again.",
          make_sim},
      CommandEntry{"api", "[PROGRAM] [flags]",
                   "Lists the requests of the REST API or of an engine, and who may send them.", make_api},
      CommandEntry{"controller", "[init|ca [rotate]] [flags]",
                   "Runs the controller of a cluster.\n\n"
                   "`ca` shows the authority that signs for the nodes of a cluster that runs, and `ca "
                   "rotate` takes the next "
                   "step to another one: it is trusted beside the one before; it signs; with --finish the "
                   "old one is trusted "
                   "no more. No node and no job is interrupted.",
                   make_controller},
      CommandEntry{"agent", "[join HOST:PORT] [flags]",
                   "Joins this server to a cluster as a node.\n\n"
                   "With `join` it first gets a certificate: `tutti nodes token`, where the cluster is "
                   "managed, prints the "
                   "line. The same line starts it again later, and so does `tutti agent` alone.",
                   make_agent},
      CommandEntry{"shim", "FOLDER [PLACE]", "Runs one rank; agents call it.", make_shim},
      CommandEntry{"model", "MODEL OPTIONS",
                   "Computes one part of a model; `tutti engine --tensor-parallel` calls it.", make_model},
      CommandEntry{"help", "[COMMAND|environment]", "Explains tutti, one command, or the variables.",
                   make_help},
      CommandEntry{"version", "", "Tells which tutti this is.", make_version},
  };
  return table;
}

}  // namespace tutti::cli
