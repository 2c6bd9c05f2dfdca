#include "comm/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/check.hpp"
#include "comm/cuda.hpp"
#include "comm/device.hpp"
#include "comm/frame.hpp"
#include "comm/lane.hpp"
#include "comm/world.hpp"

namespace tutti::comm {
namespace {

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// What a lane needs to run its operations; lives as long as the lane.
struct Track {
  std::shared_ptr<World> world;
  std::uint64_t id = 0;
  std::string name;
  std::vector<int> ranks;  // of the world
  std::uint64_t last_sequence = 0;
  std::atomic<cuda::Stream> stream{nullptr};
  std::unique_ptr<Collectives> collectives;   // of a pair: made at the first message
  std::shared_ptr<DeviceCollectives> device;  // with options.device_memory

  void prepare_device(bool messages) {
    if (!world->options().device_memory) return;
    const auto me = std::find(ranks.begin(), ranks.end(), world->options().rank) - ranks.begin();
    device =
        std::make_shared<DeviceCollectives>(static_cast<int>(ranks.size()), static_cast<int>(me), messages);
    world->watchdog().know(device);
  }

  OperationRecord record_of(const Work::State& work) const {
    const Call& call = work.call;
    return {.group = id,
            .sequence = work.sequence,
            .operation = call.operation,
            .type = call.type,
            .reduction = call.reduction,
            .root = call.root,
            .on_device = work.on_device,
            .bytes = call.bytes(),
            .enqueued_ns = nanoseconds(work.enqueued)};
  }

  void number(Work::State& work) {
    work.sequence = ++last_sequence;
    work.enqueued = Clock::now();
    work.record = world->recorder().enqueued(record_of(work));
  }

  Result<> run(Work::State& work) {
    if (world->fault().raised()) return world->fault().error();
    // The first to run is hardly ever later than its enqueueing; the clock is not asked twice for it.
    const auto began = last_ended_ > work.enqueued ? last_ended_ : work.enqueued;
    // On a stream it begins when the device comes to it.
    const bool streams = work.on_device && device->streams();
    if (!streams) world->recorder().started(work.record, nanoseconds(began));
    const Duration time = work.deadline > Duration::zero() ? work.deadline : world->options().deadline;
    const auto deadline = began + time;
    if (!collectives) {
      auto made = world->establish(id, name, ranks, deadline);
      if (!made) {
        world->control().abort(made.error().text());
        world->fault().raise(made.error().text());
        return std::move(made).error();
      }
      collectives = std::move(*made);
    }
    const Limits limits{deadline, &world->fault(), fingerprint(work)};
    const Outcome outcome =
        work.on_device ? run_on_device(work, limits) : collectives->run(work.call, limits);
    if (outcome.ok() && work.launched_on) {
      world->watchdog().watch({work.launched_on, work.ticket, work.record, record_of(work), time});
      return {};
    }
    const auto ended = Clock::now();
    if (outcome.ok()) {
      last_ended_ = ended;
      world->recorder().ended(work.record, nanoseconds(ended));
      return {};
    }
    Question question{.group = id,
                      .group_name = name,
                      .members = ranks,
                      .asker = world->options().rank,
                      .waited_ns = nanoseconds(ended) - nanoseconds(began),
                      .operation = record_of(work)};
    return world->blame(question, outcome);
  }

 private:
  // Ranks that give host memory and ranks that give device memory are in different operations.
  static std::uint32_t fingerprint(const Work::State& work) {
    constexpr std::uint32_t device = 0x5bd1e994;
    return work.call.fingerprint() ^ (work.on_device ? device : 0);
  }

  Outcome run_on_device(Work::State& work, const Limits& limits) {
    std::optional<Ticket> ticket;
    Outcome outcome =
        device->run(*collectives, work.call, {work.context, work.ready, work.stream}, limits, ticket);
    if (outcome.ok() && ticket) {
      work.launched_on = device;
      work.ticket = *ticket;
    }
    return outcome;
  }

  Clock::time_point last_ended_{};
};

cuda::Place place_of(const Call& call) {
  const cuda::Place in = cuda::place_of(call.in);
  return in.device || call.in == call.out ? in : cuda::place_of(call.out);
}

// Marks the point on the caller's stream where the input is complete, for an operation that is run later.
void mark_ready(Work::State& work) {
  const cuda::Driver* const driver = cuda::driver();
  const cuda::ContextGuard guard(work.context);
  constexpr unsigned without_timing = 2;
  if (driver->event_create(&work.ready, without_timing) != 0) return;
  driver->event_record(work.ready, work.stream);
}

std::shared_ptr<Lane> make_lane(const std::shared_ptr<Track>& track) {
  return std::make_shared<Lane>([track](Work::State& work) { return track->run(work); });
}

Work refuse(Error error) {
  auto state = std::make_shared<Work::State>();
  state->result = std::move(error);
  state->done.store(true, std::memory_order_release);
  return {nullptr, std::move(state)};
}

Result<std::int64_t> number_from_environment(const char* name, std::int64_t smallest, std::int64_t largest) {
  const char* const text = std::getenv(name);
  if (text == nullptr)
    return invalid(std::string(name) + " is not set").remedy("start the program with 'tutti run'");
  const std::string_view digits(text);
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc{} || end != digits.data() + digits.size() || value < smallest || value > largest) {
    return invalid(std::string(name) + " is '" + std::string(digits) + "'");
  }
  return value;
}

constexpr std::int64_t ranks_max = 1'000'000;

}  // namespace

struct Communicator::Group {
  std::shared_ptr<Track> track;
  std::shared_ptr<Lane> lane;
  int me = 0;
  std::mutex mutex;
  std::uint64_t splits = 0;
  std::map<std::pair<int, int>, std::pair<std::shared_ptr<Track>, std::shared_ptr<Lane>>> pairs;  // from, to

  Group(std::shared_ptr<World> world, std::uint64_t id, std::string name, std::vector<int> ranks,
        int my_index, std::unique_ptr<Collectives> collectives)
      : track(std::make_shared<Track>()), me(my_index) {
    track->world = std::move(world);
    track->id = id;
    track->name = std::move(name);
    track->ranks = std::move(ranks);
    track->collectives = std::move(collectives);
    track->prepare_device(false);
    lane = make_lane(track);
  }

  Work push(const Call& call, Duration deadline) {
    if (auto fine = check_overlap(call); !fine) return refuse(std::move(fine).error());
    return push(*track, lane, call, deadline);
  }

  static Work push(Track& on, const std::shared_ptr<Lane>& lane, const Call& call, Duration deadline) {
    auto state = std::make_shared<Work::State>();
    state->call = call;
    state->deadline = deadline;
    const auto number = [&](Work::State& work) { on.number(work); };
    const cuda::Place place = on.device ? place_of(call) : cuda::Place();
    if (place.device) {
      state->on_device = true;
      state->context = place.context;
      state->stream = on.stream.load(std::memory_order_relaxed);
      if (runs_now(on, *lane, call)) {
        lane->run_now(state, number);
        return {lane, std::move(state)};
      }
      state->deferred = call.operation == Operation::recv && !on.device->through_host();
      if (!state->deferred) mark_ready(*state);
    }
    lane->push(state, number);
    return {lane, std::move(state)};
  }

  // Operations on streams are put there by their calls, so that all ranks have them in one order, that of the
  // calls. The first message of a pair waits for its peer, and may not keep the caller from what the peer
  // waits for; what is received is asked for when it is waited for; through the host an operation takes its
  // time.
  static bool runs_now(const Track& on, Lane& lane, const Call& call) {
    if (call.operation == Operation::recv) return false;
    if (call.operation == Operation::send) return on.device->streams() && lane.idle();
    return !on.device->through_host();
  }

  // Messages from one rank to another are the operations of a group of the two.
  Work push_message(const Call& call, int from, int to, Duration deadline) {
    const int peer = from == me ? to : from;
    if (peer < 0 || peer >= static_cast<int>(track->ranks.size()) || peer == me) {
      return refuse(invalid("rank " + std::to_string(peer) + " cannot be the peer of a message"));
    }
    const std::unique_lock lock(mutex);
    auto& [pair_track, pair_lane] = pairs[{from, to}];
    if (!pair_track) {
      pair_track = std::make_shared<Track>();
      pair_track->world = track->world;
      const auto numbers = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
      pair_track->id = mix(mix(track->id, 0x70616972), numbers);
      pair_track->name = track->name + ", " + std::to_string(from) + " to " + std::to_string(to);
      pair_track->ranks = {track->ranks[static_cast<std::size_t>(from)],
                           track->ranks[static_cast<std::size_t>(to)]};
      pair_track->stream.store(track->stream.load(std::memory_order_relaxed), std::memory_order_relaxed);
      pair_track->prepare_device(true);
      pair_lane = make_lane(pair_track);
    }
    return push(*pair_track, pair_lane, call, deadline);
  }

  // Input and output may be one buffer, or the one this rank's block of the other; anything else would be
  // overwritten while it is still needed.
  Result<> check_overlap(const Call& call) const {
    const std::size_t bytes = call.bytes();
    const std::size_t all = bytes * track->ranks.size();
    const std::size_t mine = bytes * static_cast<std::size_t>(me);
    const bool root = call.root == me;
    const auto refuse_if = [&](bool overlaps) -> Result<> {
      if (!overlaps) return {};
      return invalid("the input and the output of " + std::string(name_of(call.operation)) + " overlap")
          .remedy("they may be apart, or the smaller one this rank's block of the larger one");
    };
    const auto apart = [&](std::size_t in_bytes, std::size_t out_bytes) {
      return call.in + in_bytes <= call.out || call.out + out_bytes <= call.in;
    };
    switch (call.operation) {
      case Operation::all_gather:
        return refuse_if(!apart(bytes, all) && call.in != call.out + mine);
      case Operation::gather:
        return refuse_if(root && !apart(bytes, all) && call.in != call.out + mine);
      case Operation::reduce_scatter:
        return refuse_if(!apart(all, bytes) && call.out != call.in + mine);
      case Operation::scatter:
        return refuse_if(root && !apart(all, bytes) && call.out != call.in + mine);
      case Operation::all_to_all:
        return refuse_if(!apart(all, all) && call.in != call.out);
      case Operation::all_reduce:
        return refuse_if(!apart(bytes, bytes) && call.in != call.out);
      case Operation::reduce:
        return refuse_if(root && !apart(bytes, bytes) && call.in != call.out);
      case Operation::broadcast:
      case Operation::send:
      case Operation::recv:
      case Operation::barrier:
        return {};
    }
    return {};
  }

  // A root that does not exist must not reach the others.
  Work push_rooted(const Call& call, Duration deadline) {
    if (call.root < 0 || call.root >= static_cast<int>(track->ranks.size())) {
      return refuse(invalid("root " + std::to_string(call.root) + " is no rank of this group"));
    }
    return push(call, deadline);
  }
};

Result<Options> Options::from_environment() {
  Options options;
  auto size = number_from_environment("WORLD_SIZE", 1, ranks_max);
  if (!size) return std::move(size).error();
  auto rank = number_from_environment("RANK", 0, *size - 1);
  if (!rank) return std::move(rank).error();
  options.size = static_cast<int>(*size);
  options.rank = static_cast<int>(*rank);
  if (options.size == 1) return options;
  const char* const address = std::getenv("MASTER_ADDR");
  if (address == nullptr || *address == '\0') return invalid("MASTER_ADDR is not set");
  options.master_address = address;
  auto port = number_from_environment("MASTER_PORT", 1, 65535);
  if (!port) return std::move(port).error();
  options.master_port = static_cast<std::uint16_t>(*port);
  if (const char* const secret = std::getenv("TUTTI_WORLD_SECRET"); secret != nullptr)
    options.secret = secret;
  return options;
}

Result<> Work::wait() {
  if (!lane_) return state_->result;
  auto launched = lane_->wait(*state_);
  if (!launched || !state_->launched_on) return launched;
  return state_->launched_on->follow(state_->stream, state_->ticket);
}

bool Work::done() const {
  if (!state_->done.load(std::memory_order_acquire)) return false;
  return !state_->launched_on || state_->launched_on->finished(state_->ticket);
}

Result<Communicator> Communicator::connect(const Options& options) {
  if (options.device_memory && cuda::driver() == nullptr) {
    return failed("device memory needs libcuda.so.1, which is not there").remedy("install the NVIDIA driver");
  }
  auto world = World::connect(options);
  if (!world) return std::move(world).error();
  std::vector<int> ranks(static_cast<std::size_t>(options.size));
  for (int rank = 0; rank < options.size; ++rank) ranks[static_cast<std::size_t>(rank)] = rank;
  auto collectives = (*world)->establish(0, "world", ranks, Clock::now() + options.connect_timeout);
  if (!collectives) {
    (*world)->control().abort(collectives.error().text());
    return std::move(collectives).error();
  }
  return Communicator(std::make_shared<Group>(std::move(*world), 0, "world", std::move(ranks), options.rank,
                                              std::move(*collectives)));
}

int Communicator::rank() const { return group_->me; }
int Communicator::size() const { return static_cast<int>(group_->track->ranks.size()); }
const std::string& Communicator::name() const { return group_->track->name; }
const std::string& Communicator::node(int rank) const {
  const auto& ranks = group_->track->ranks;
  return group_->track->world->members()[static_cast<std::size_t>(ranks.at(static_cast<std::size_t>(rank)))]
      .node;
}

bool Communicator::on_one_host() const {
  const auto& ranks = group_->track->ranks;
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return group_->track->world->shares_memory(ranks.front(), rank); });
}

namespace {

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

Work Communicator::all_reduce(const void* in, void* out, std::size_t count, DataType type,
                              Reduction reduction, Duration deadline) {
  return group_->push({Operation::all_reduce, bytes(in), bytes(out), count, type, reduction}, deadline);
}
Work Communicator::reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                                  Reduction reduction, Duration deadline) {
  return group_->push({Operation::reduce_scatter, bytes(in), bytes(out), count, type, reduction}, deadline);
}
Work Communicator::reduce(const void* in, void* out, std::size_t count, DataType type, Reduction reduction,
                          int root, Duration deadline) {
  return group_->push_rooted({Operation::reduce, bytes(in), bytes(out), count, type, reduction, root},
                             deadline);
}
Work Communicator::broadcast(void* data, std::size_t count, DataType type, int root, Duration deadline) {
  return group_->push_rooted(
      {Operation::broadcast, bytes(data), bytes(data), count, type, Reduction::sum, root}, deadline);
}
Work Communicator::all_gather(const void* in, void* out, std::size_t count, DataType type,
                              Duration deadline) {
  return group_->push({Operation::all_gather, bytes(in), bytes(out), count, type}, deadline);
}
Work Communicator::all_to_all(const void* in, void* out, std::size_t count, DataType type,
                              Duration deadline) {
  return group_->push({Operation::all_to_all, bytes(in), bytes(out), count, type}, deadline);
}
Work Communicator::gather(const void* in, void* out, std::size_t count, DataType type, int root,
                          Duration deadline) {
  return group_->push_rooted({Operation::gather, bytes(in), bytes(out), count, type, Reduction::sum, root},
                             deadline);
}
Work Communicator::scatter(const void* in, void* out, std::size_t count, DataType type, int root,
                           Duration deadline) {
  return group_->push_rooted({Operation::scatter, bytes(in), bytes(out), count, type, Reduction::sum, root},
                             deadline);
}
Work Communicator::send(const void* data, std::size_t count, DataType type, int peer, Duration deadline) {
  const Call call{Operation::send, bytes(data), nullptr, count, type, Reduction::sum, peer};
  return group_->push_message(call, group_->me, peer, deadline);
}
Work Communicator::recv(void* data, std::size_t count, DataType type, int peer, Duration deadline) {
  const Call call{Operation::recv, nullptr, bytes(data), count, type, Reduction::sum, peer};
  return group_->push_message(call, peer, group_->me, deadline);
}
Work Communicator::barrier(Duration deadline) { return group_->push({Operation::barrier}, deadline); }

Result<Communicator> Communicator::split(int color, int key, const std::string& name) {
  Track& track = *group_->track;
  World& world = *track.world;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(group_->mutex);
    number = ++group_->splits;
  }
  const std::uint64_t id = mix(mix(track.id, 0x73706c6974), number);
  const auto deadline = Clock::now() + world.options().connect_timeout;
  std::vector<std::pair<int, int>> chosen{{key, group_->me}};
  if (size() > 1) {
    Writer telling;
    telling.number(color).number(key);
    auto told = world.control().exchange(id, static_cast<std::uint32_t>(size()),
                                         static_cast<std::uint32_t>(group_->me), telling.take(), deadline);
    if (!told) return std::move(told).error().within("split of group " + track.name);
    chosen.clear();
    for (int member = 0; member < size(); ++member) {
      Reader reader((*told)[static_cast<std::size_t>(member)]);
      const int their_color = reader.number<int>();
      const int their_key = reader.number<int>();
      if (their_color == color) chosen.emplace_back(their_key, member);
    }
    std::sort(chosen.begin(), chosen.end());
  }
  std::vector<int> ranks;
  int me = 0;
  for (const auto& [their_key, member] : chosen) {
    if (member == group_->me) me = static_cast<int>(ranks.size());
    ranks.push_back(track.ranks[static_cast<std::size_t>(member)]);
  }
  const std::uint64_t group = mix(id, static_cast<std::uint64_t>(static_cast<std::uint32_t>(color)));
  const std::string label = name.empty() ? track.name + "/" + std::to_string(color) : name;
  auto collectives = world.establish(group, label, ranks, deadline);
  if (!collectives) return std::move(collectives).error().within("split of group " + track.name);
  return Communicator(
      std::make_shared<Group>(track.world, group, label, std::move(ranks), me, std::move(*collectives)));
}

void Communicator::use_stream(void* stream) {
  const std::lock_guard lock(group_->mutex);
  group_->track->stream.store(stream, std::memory_order_relaxed);
  for (auto& [ranks, pair] : group_->pairs) pair.first->stream.store(stream, std::memory_order_relaxed);
}

std::string Communicator::device_way() const {
  return group_->track->device ? group_->track->device->way() : "";
}

Result<> Communicator::check() const { return group_->track->world->check(); }

void Communicator::abort(const std::string& why) {
  World& world = *group_->track->world;
  if (world.options().size > 1) world.control().abort(why);
  world.fault().raise(world.text_of(world.options().rank) + " aborted: " + why);
}

}  // namespace tutti::comm
