#include "control/trace/row.hpp"

#include <algorithm>
#include <cstdio>

namespace tutti::trace {
namespace {

// A comma or a line break would begin another cell or row.
std::string cell(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char letter) { return letter == ',' || letter == '\n' || letter == '\r' || letter == '"'; }, '_');
  return text;
}

}  // namespace

std::string header_line() { return "job_id,submit_s,gpus,duration_s,gpu_type,user,status,partition\n"; }

std::string line_of(const Row& row) {
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, ",%.3f,%g,%.3f,", row.submit_s, row.gpus, row.duration_s);
  return cell(row.id) + numbers + cell(row.gpu_type) + "," + cell(row.user) + "," + cell(row.status) + "," +
         cell(row.partition) + "\n";
}

}  // namespace tutti::trace
