#include "control/cluster/job_bytes.hpp"

#include "base/units.hpp"
#include "control/cluster/limits.hpp"
#include "control/cluster/model.hpp"

namespace tutti::cluster {
namespace {

// The numbers of a job; what else one takes is bounded with their number.
constexpr std::size_t bytes_of_each = 64;

std::string in_words(std::size_t bytes) { return format_bytes(Bytes(static_cast<std::int64_t>(bytes))); }

}  // namespace

std::size_t own_bytes_of(const JobSpec& spec) {
  return bytes_of_each + spec.name.size() + spec.workdir.size() + spec.sync.size() + spec.output.size() +
         spec.user.size() + spec.queue.size() + spec.shape.gpu_model.size();
}

std::size_t shared_bytes_of(const JobSpec& spec) {
  return bytes_of(spec.command) + bytes_of(spec.env) + bytes_of(spec.secrets) +
         spec.after.size() * sizeof(Dependency);
}

void JobBytes::add(const std::string& user, std::size_t bytes) {
  unfinished_ += bytes;
  users_[user] += bytes;
}

void JobBytes::remove(const std::string& user, std::size_t bytes) {
  unfinished_ -= bytes;
  const auto known = users_.find(user);
  if ((known->second -= bytes) == 0) users_.erase(known);
}

void JobBytes::comes(const Job& job) {
  std::size_t bytes = own_bytes_of(job.spec);
  std::size_t first_bytes = 0;
  std::size_t first_unfinished_bytes = 0;
  if (job.spec.array) {
    Array& array = arrays_[job.spec.array->first];
    if (array.all++ == 0) first_bytes = array.shared_bytes = shared_bytes_of(job.spec);
    if (array.unfinished++ == 0) first_unfinished_bytes = array.shared_bytes;
  } else {
    bytes += shared_bytes_of(job.spec);
  }
  all_ += bytes + first_bytes;
  add(job.spec.user, bytes + first_unfinished_bytes);
}

void JobBytes::ends(const Job& job) {
  std::size_t bytes = own_bytes_of(job.spec);
  if (job.spec.array) {
    Array& array = arrays_.at(job.spec.array->first);
    if (--array.unfinished == 0) bytes += array.shared_bytes;
  } else {
    bytes += shared_bytes_of(job.spec);
  }
  remove(job.spec.user, bytes);
}

void JobBytes::goes(const Job& job) {
  std::size_t bytes = own_bytes_of(job.spec);
  if (job.spec.array) {
    const auto array = arrays_.find(job.spec.array->first);
    if (--array->second.all == 0) {
      bytes += array->second.shared_bytes;
      arrays_.erase(array);
    }
  } else {
    bytes += shared_bytes_of(job.spec);
  }
  all_ -= bytes;
}

std::size_t JobBytes::of_user(const std::string& user) const {
  const auto known = users_.find(user);
  return known == users_.end() ? 0 : known->second;
}

Result<> JobBytes::admit(const JobSpec& spec, std::size_t jobs) const {
  const std::size_t bytes = own_bytes_of(spec) * jobs + shared_bytes_of(spec);
  const auto refuse = [&](const std::string& whose, std::size_t held, std::size_t most) {
    return failed(whose + " hold " + in_words(held) + " and this would add " + in_words(bytes) + "; " +
                  in_words(most) + " is the most");
  };
  if (of_user(spec.user) + bytes > unfinished_bytes_of_user_max)
    return refuse("the unfinished jobs of user '" + spec.user + "'", of_user(spec.user),
                  unfinished_bytes_of_user_max)
        .remedy("submit again when some have ended, and ship what is large as a file, with sync");
  if (unfinished_ + bytes > unfinished_bytes_max)
    return refuse("the unfinished jobs of this cluster", unfinished_, unfinished_bytes_max)
        .remedy("submit again when some have ended");
  if (all_ + bytes > all_bytes_max)
    return refuse("the jobs of this cluster, with those that have just ended,", all_, all_bytes_max)
        .remedy("submit again in some seconds: finished ones are being forgotten");
  return {};
}

}  // namespace tutti::cluster
