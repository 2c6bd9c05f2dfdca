// Between protobuf's messages and ours. For this module's own files only.
#pragma once

#include "control/cluster/step.hpp"
#include "proto/tutti.pb.h"

namespace tutti::wire {

// Beyond these a number is a mistake, or an attack on the arithmetic.
constexpr std::int64_t time_ms_max = 100LL * 365 * 86'400'000;  // a century
constexpr std::int64_t bytes_max = 1LL << 50;

void to_proto(const cluster::JobSpec& from, proto::JobSpec& to);
Result<cluster::JobSpec> from_proto(const proto::JobSpec& from);
void to_proto(const cluster::ArrayPart& from, proto::ArrayPart& to);
Result<cluster::ArrayPart> from_proto(const proto::ArrayPart& from);
void to_proto(const sched::RankPlace& from, proto::RankPlace& to);
sched::RankPlace from_proto(const proto::RankPlace& from);
void to_proto(const cluster::RankStatus& from, proto::RankStatus& to);
Result<cluster::RankStatus> from_proto(const proto::RankStatus& from);
void to_proto(const cluster::Inventory& from, proto::Inventory& to);
Result<cluster::Inventory> from_proto(const proto::Inventory& from);

void to_proto(const people::Grant& from, proto::Grant& to);
Result<people::Grant> from_proto(const proto::Grant& from);
Error no_role(std::string_view name);

// The API speaks of GPUs, microseconds and GB; the cluster of thousandths, nanoseconds and bytes.
inline double gpus_of(std::int64_t share) { return static_cast<double>(share) / sched::whole_share; }
constexpr double ns_per_us = 1e3;
constexpr double bytes_per_gb = 1e9;

inline std::vector<std::string> strings(const google::protobuf::RepeatedPtrField<std::string>& from) {
  return {from.begin(), from.end()};
}
inline void add_strings(const std::vector<std::string>& from,
                        google::protobuf::RepeatedPtrField<std::string>& to) {
  for (const auto& text : from) *to.Add() = text;
}

}  // namespace tutti::wire
