#include "common/slurm.hpp"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

namespace tutti::bench {
namespace {

constexpr Duration start_time_max = 60s;
constexpr Duration end_time_max = 10s;

// Ports that are free now, all different: they are held until all are known.
Result<std::vector<int>> free_ports(int count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (int at = 0; at < count; ++at) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* general = reinterpret_cast<sockaddr*>(&address);
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(sockets.back(), general, size) != 0) break;
    if (::getsockname(sockets.back(), general, &size) != 0) break;
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int socket : sockets) ::close(socket);
  if (ports.size() != static_cast<std::size_t>(count)) return failed("there are no free ports");
  return ports;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string random_text() {
  std::random_device device;
  std::string text;
  for (int at = 0; at < 16; ++at) text += std::to_string(device());
  return text;
}

bool installed() {
  constexpr std::array programs{"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd",
                                "/usr/bin/srun", "/usr/bin/sbatch"};
  return std::all_of(programs.begin(), programs.end(),
                     [](const char* program) { return std::filesystem::exists(program); });
}

}  // namespace

Result<std::unique_ptr<SlurmCluster>> SlurmCluster::start(int nodes, int gpus) {
  if (!installed()) return failed("not installed (packages slurm-wlm munge)");
  if (::geteuid() != 0) return failed("not measured: its daemons and device files need root");
  std::unique_ptr<SlurmCluster> cluster(new SlurmCluster(nodes, gpus));
  if (auto made = cluster->make_files(); !made) return std::move(made).error();
  if (auto made = cluster->make_devices(); !made) return std::move(made).error();
  if (auto started = cluster->start_daemons(); !started) return std::move(started).error();
  return cluster;
}

Result<> SlurmCluster::make_files() {
  auto ports = free_ports(nodes_ + 1);
  if (!ports) return std::move(ports).error();
  const std::string host = host_name();
  std::string text =
      "ClusterName=bench\nSlurmctldHost=" + host +
      "(127.0.0.1)\n"
      "SlurmctldPort=" +
      std::to_string(ports->back()) +
      "\nSlurmUser=root\nAuthType=auth/munge\nAuthInfo=socket=" + file("munge.socket") +
      "\nStateSaveLocation=" + file("state") + "\nSlurmdSpoolDir=" + file("spool-%n") +
      "\nSlurmctldLogFile=" + file("slurmctld.log") + "\nSlurmdLogFile=" + file("slurmd-%n.log") +
      "\nSlurmctldPidFile=" + file("slurmctld.pid") + "\nSlurmdPidFile=" + file("slurmd-%n.pid") +
      "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
      "SelectTypeParameters=CR_Core\nSchedulerType=sched/backfill\nGresTypes=gpu\n"
      "ReturnToService=2\nSlurmdParameters=config_overrides\nMpiDefault=none\n";
  const std::string devices = std::to_string(gpus_);
  for (int node = 1; node <= nodes_; ++node) {
    text += "NodeName=n" + std::to_string(node) + " NodeHostname=" + host +
            " NodeAddr=127.0.0.1 Port=" + std::to_string((*ports)[static_cast<std::size_t>(node - 1)]) +
            " CPUs=16 Sockets=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=2000 Gres=gpu:h100:" + devices +
            "\n";
  }
  const std::string names = "n[1-" + std::to_string(nodes_) + "]";
  text += "PartitionName=all Nodes=" + names + " Default=YES MaxTime=INFINITE State=UP\n";
  support::write_text(file("slurm.conf"), text);
  support::write_text(file("gres.conf"), "AutoDetect=off\nNodeName=" + names + " Name=gpu Type=h100 File=" +
                                             file("gpu[0-" + std::to_string(gpus_ - 1) + "]") + "\n");
  // A secret of this run alone: at least 32 bytes, readable by its owner only.
  support::write_text(file("munge.key"), random_text());
  ::chmod(file("munge.key").c_str(), 0400);
  // The daemons of the authentication want their folder to be passable for all.
  ::chmod(folder_.path().c_str(), 0755);
  std::filesystem::create_directories(file("state"));
  env_ = {{"SLURM_CONF", file("slurm.conf")}};
  return {};
}

// Slurm asks only that the files exist and are devices.
Result<> SlurmCluster::make_devices() const {
  constexpr unsigned nvidia_major = 195;
  for (int device = 0; device < gpus_; ++device) {
    const std::string path = file("gpu" + std::to_string(device));
    if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(nvidia_major, static_cast<unsigned>(device))) != 0)
      return failed_errno("cannot make a device", errno).within(path);
  }
  return {};
}

Result<> SlurmCluster::start_daemons() {
  auto munged = run({"/usr/sbin/munged", "--force", "--key-file=" + file("munge.key"),
                     "--socket=" + file("munge.socket"), "--pid-file=" + file("munged.pid"),
                     "--log-file=" + file("munged.log"), "--seed-file=" + file("munged.seed")});
  if (!munged) return std::move(munged).error();
  if (auto started = run({"/usr/sbin/slurmctld", "-c"}); !started) return std::move(started).error();
  for (int node = 1; node <= nodes_; ++node) {
    if (auto started = run({"/usr/sbin/slurmd", "-N", "n" + std::to_string(node)}); !started)
      return std::move(started).error();
  }
  return wait_until("Slurm's nodes are idle", start_time_max, 200ms, [this]() -> Result<bool> {
    auto idle = run({"sinfo", "-h", "-t", "idle", "-o", "%D"});
    if (!idle) return false;  // its controller may not listen yet
    return std::strtol(idle->c_str(), nullptr, 10) == nodes_;
  });
}

Result<int> SlurmCluster::unfinished() const {
  auto listed = run({"squeue", "-h", "-o", "%i"});
  if (!listed) return std::move(listed).error();
  return static_cast<int>(std::count(listed->begin(), listed->end(), '\n'));
}

pid_t SlurmCluster::pid_of(const std::string& daemon) const {
  return std::atoi(support::read_text(file(daemon + ".pid")).c_str());
}

void SlurmCluster::end(const std::string& daemon) const {
  const pid_t pid = pid_of(daemon);
  if (pid <= 0) return;
  ::kill(pid, SIGTERM);
  const auto gone = [pid] { return ::kill(pid, 0) != 0; };
  if (!support::eventually(gone, end_time_max)) ::kill(pid, SIGKILL);
}

SlurmCluster::~SlurmCluster() {
  for (int node = 1; node <= nodes_; ++node) end("slurmd-n" + std::to_string(node));
  end("slurmctld");
  end("munged");
}

}  // namespace tutti::bench
