#include "node/rank/device_filter.hpp"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/text.hpp"
#include "node/rank/cgroups.hpp"

namespace tutti::rank {
namespace {

// Of every rank: what holds nothing of anybody's, and what processes and machines are fast with.
constexpr std::array everybodys{"null", "zero", "full",   "random", "urandom",
                                "tty",  "ptmx", "gdrdrv", "knem",   "xpmem"};
constexpr std::array everybodys_folders{"infiniband"};
// Terminals that a program opens for itself: the kernel makes their files.
constexpr std::uint32_t terminals_first = 136;
constexpr std::uint32_t terminals_last = 143;
// Of those with a GPU.
constexpr std::array of_gpus{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
constexpr std::array of_gpus_folders{"nvidia-caps-imex-channels"};
constexpr std::string_view gpu_file = "nvidia";
constexpr std::size_t gpu_numbers_max = 64;
constexpr std::size_t information_bytes_max = 65'536;
constexpr std::size_t devices_max = 512;

std::optional<std::uint32_t> whole_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

void add(std::vector<DeviceNumber>& devices, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode) || devices.size() >= devices_max) return;
  devices.push_back({major(status.st_rdev), minor(status.st_rdev)});
}

std::vector<std::string> names_in(const std::string& folder) {
  const auto names = files::list_folder(folder);
  return names && *names ? **names : std::vector<std::string>();
}

void add_all(std::vector<DeviceNumber>& devices, const std::string& folder) {
  for (const std::string& name : names_in(folder)) add(devices, folder + "/" + name);
}

// What follows "NAME:" in a line.
std::string_view value_of(std::string_view text, std::string_view name) {
  for (const auto line : split(text, '\n'))
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':'))
      return trim(line.substr(name.size() + 1));
  return {};
}

// The numbers of the files of these GPUs; nothing if the driver does not tell.
std::optional<std::vector<std::uint32_t>> files_of(const std::vector<std::string>& gpus,
                                                   const std::string& proc) {
  const std::string listing = proc + "/driver/nvidia/gpus";
  std::vector<std::uint32_t> numbers;
  bool is_told = false;
  for (const std::string& name : names_in(listing)) {
    const auto text = files::read_file(listing + "/" + name + "/information", information_bytes_max);
    if (!text || !*text) continue;
    const auto number = whole_number(value_of(**text, "Device Minor"));
    const std::string uuid(value_of(**text, "GPU UUID"));
    if (!number || uuid.empty()) continue;
    is_told = true;
    const auto is_it = [&](const std::string& gpu) { return gpu == uuid || whole_number(gpu) == number; };
    if (std::any_of(gpus.begin(), gpus.end(), is_it)) numbers.push_back(*number);
  }
  return is_told ? std::optional(numbers) : std::nullopt;
}

// ---- the program of the kernel, as instructions

// A register is a number of four bits.
bpf_insn instruction(int code, std::uint8_t to, std::uint8_t from, std::int16_t offset, std::int32_t value) {
  return {.code = static_cast<std::uint8_t>(code),
          .dst_reg = static_cast<std::uint8_t>(to & 0xF),
          .src_reg = static_cast<std::uint8_t>(from & 0xF),
          .off = offset,
          .imm = value};
}
bpf_insn load(std::uint8_t to, std::uint8_t from, std::int16_t offset) {
  return instruction(BPF_LDX | BPF_W | BPF_MEM, to, from, offset, 0);
}
bpf_insn set(std::uint8_t to, std::int32_t value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}
bpf_insn mask(std::uint8_t of, std::int32_t value) {
  return instruction(BPF_ALU64 | BPF_AND | BPF_K, of, 0, 0, value);
}
bpf_insn skip_unless(std::uint8_t value, std::uint32_t equals, std::int16_t count) {
  return instruction(BPF_JMP | BPF_JNE | BPF_K, value, 0, count, static_cast<std::int32_t>(equals));
}
bpf_insn skip(std::int16_t count) { return instruction(BPF_JMP | BPF_JA, 0, 0, count, 0); }
bpf_insn leave() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

std::vector<bpf_insn> program_of(const std::vector<DeviceNumber>& allowed) {
  constexpr std::uint8_t answer = 0;
  constexpr std::uint8_t context = 1;
  constexpr std::uint8_t kind = 2;
  constexpr std::uint8_t major_number = 3;
  constexpr std::uint8_t minor_number = 4;
  constexpr std::int32_t kind_bits = 0xFFFF;
  constexpr std::int32_t makes = BPF_DEVCG_ACC_MKNOD << 16;
  std::vector<bpf_insn> program{
      load(kind, context, offsetof(bpf_cgroup_dev_ctx, access_type)),
      mask(kind, kind_bits | makes),
      load(major_number, context, offsetof(bpf_cgroup_dev_ctx, major)),
      load(minor_number, context, offsetof(bpf_cgroup_dev_ctx, minor)),
      set(answer, 0),
      // Neither blocks, nor new files for devices.
      skip_unless(kind, BPF_DEVCG_DEV_CHAR, 1),
      skip(1),
      leave(),
  };
  for (const DeviceNumber& device : allowed) {
    if (device.all_of_major) {
      program.insert(program.end(), {skip_unless(major_number, device.major, 2), set(answer, 1), leave()});
    } else {
      program.insert(program.end(), {skip_unless(major_number, device.major, 3),
                                     skip_unless(minor_number, device.minor, 2), set(answer, 1), leave()});
    }
  }
  program.insert(program.end(), {set(answer, 0), leave()});
  return program;
}

std::uint64_t address_of(const void* thing) { return reinterpret_cast<std::uintptr_t>(thing); }

files::FileDescriptor load_program(const std::vector<DeviceNumber>& allowed) {
  const auto program = program_of(allowed);
  constexpr const char* license = "Apache-2.0";
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  load.insn_cnt = static_cast<std::uint32_t>(program.size());
  load.insns = address_of(program.data());
  load.license = address_of(license);
  std::memcpy(load.prog_name, "tutti_devices", sizeof "tutti_devices");
  return files::FileDescriptor(static_cast<int>(syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
}

// It stays for as long as the cgroup does.
bool attach(const std::string& cgroup, const std::vector<DeviceNumber>& allowed) {
  const files::FileDescriptor folder(open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const files::FileDescriptor program = load_program(allowed);
  if (!folder.valid() || !program.valid()) return false;
  bpf_attr attach{};
  attach.target_fd = static_cast<std::uint32_t>(folder.get());
  attach.attach_bpf_fd = static_cast<std::uint32_t>(program.get());
  attach.attach_type = BPF_CGROUP_DEVICE;
  attach.attach_flags = BPF_F_ALLOW_MULTI;
  return syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) == 0;
}

// ---- version 1

bool tell_controller(const std::string& path, std::string_view content) {
  const files::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size());
}

std::string line_of(const DeviceNumber& device) {
  return "c " + std::to_string(device.major) + ":" +
         (device.all_of_major ? "*" : std::to_string(device.minor)) + " rw";
}

}  // namespace

std::vector<DeviceNumber> devices_of_a_rank(const std::vector<std::string>& gpus, const std::string& dev,
                                            const std::string& proc) {
  std::vector<DeviceNumber> devices;
  for (const char* name : everybodys) add(devices, dev + "/" + name);
  for (const char* name : everybodys_folders) add_all(devices, dev + "/" + name);
  for (std::uint32_t terminals = terminals_first; terminals <= terminals_last; ++terminals)
    devices.push_back({.major = terminals, .all_of_major = true});
  if (gpus.empty()) return devices;
  const auto numbers = files_of(gpus, proc);
  for (std::uint32_t number = 0; number < gpu_numbers_max; ++number) {
    const bool is_given = !numbers || std::find(numbers->begin(), numbers->end(), number) != numbers->end();
    if (is_given) add(devices, dev + "/" + std::string(gpu_file) + std::to_string(number));
  }
  for (const char* name : of_gpus) add(devices, dev + "/" + name);
  for (const char* name : of_gpus_folders) add_all(devices, dev + "/" + name);
  return devices;
}

DeviceFilter::DeviceFilter(std::string name, std::string root)
    : name_(std::move(name)), root_(std::move(root)) {}

DeviceFilter::~DeviceFilter() {
  if (!folder_.empty()) remove_cgroup(folder_);
}

Result<> DeviceFilter::make(const Hold& hold, const std::vector<DeviceNumber>& allowed) {
  by_hold_ = hold.is_unified() && hold.exists() && attach(hold.folder(), allowed);
  return by_hold_ ? Result<>() : make_controller(allowed);
}

Result<> DeviceFilter::make_controller(const std::vector<DeviceNumber>& allowed) {
  const std::string parent = root_ + "/devices/tutti";
  const std::string folder = parent + "/" + name_;
  if (access((root_ + "/devices/cgroup.procs").c_str(), F_OK) != 0)
    return failed("this node has no cgroups that keep devices from ranks");
  if (auto made = files::make_folder(parent, 0755); !made) return made;
  remove_cgroup(folder);
  if (auto made = files::make_folder(folder, 0755); !made) return made;
  folder_ = folder;
  bool done = tell_controller(folder + "/devices.deny", "a");
  for (const DeviceNumber& device : allowed)
    done = done && tell_controller(folder + "/devices.allow", line_of(device));
  if (!done) return failed_errno("cannot keep devices from a rank by " + folder, errno);
  return {};
}

bool DeviceFilter::enter(bool is_held) const {
  if (by_hold_) return is_held;
  return folder_.empty() || tell_controller(folder_ + "/cgroup.procs", "0");
}

bool can_filter_devices(const std::string& name, const std::string& root) {
  const Hold hold(name, root);
  hold.make();
  bool can = false;
  {
    DeviceFilter filter(name, root);
    can = filter.make(hold, {}).ok();
  }
  hold.remove();
  return can;
}

}  // namespace tutti::rank
