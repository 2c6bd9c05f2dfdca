#include "cli/job_reading.hpp"

#include <algorithm>

#include "control/cluster/model.hpp"

namespace tutti::cli {

using nlohmann::json;

namespace {
constexpr std::int64_t page_jobs = 1000;
}

std::string text_of(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

std::string shown_state(const json& job) {
  return job.value("ending", false) ? "ending" : text_of(job, "state");
}

std::string rank_summary(const json& job) {
  const std::string ranks = std::to_string(job.at("ranks").get<int>());
  return job.at("ranks") == job.at("ranks_wanted")
             ? ranks
             : ranks + " of " + std::to_string(job.at("ranks_wanted").get<int>());
}

std::string reason_in_a_row(const std::string& reason) {
  const auto end = reason.find('\n');
  const std::string line = reason.substr(0, end);
  const auto clause = line.rfind("; ");
  const bool announces = end != std::string::npos && line.ends_with(':') && clause != std::string::npos;
  return announces ? line.substr(0, clause) : line;
}

Result<json> read_jobs(Cluster& cluster, const std::string& query, std::int64_t limit, bool* more) {
  auto jobs = json::array();
  std::string before;
  while (static_cast<std::int64_t>(jobs.size()) < limit) {
    const std::int64_t left = std::min(limit - static_cast<std::int64_t>(jobs.size()), page_jobs);
    auto page = cluster.get("jobs?limit=" + std::to_string(left) + query +
                            (before.empty() ? "" : "&before=" + before));
    if (!page) return std::move(page).error();
    for (auto& job : page->at("jobs")) jobs.push_back(std::move(job));
    before = text_of(*page, "next");
    if (before.empty()) break;
  }
  if (more != nullptr) *more = !before.empty();
  return jobs;
}

Result<json> read_array(Cluster& cluster, const std::string& job) {
  auto elements = read_jobs(cluster, "&all=1&array=" + url_encode(job), cluster::array_elements_max);
  if (elements) std::reverse(elements->begin(), elements->end());
  return elements;
}

bool names_job(const std::string& word) {
  return word.find_first_not_of("0123456789[]") == std::string::npos || !cluster::check_service_name(word);
}

Result<std::string> job_id(Cluster& cluster, const std::string& word) {
  const auto bracket = word.find('[');
  if (bracket == std::string::npos || !word.ends_with(']')) return word;
  auto elements = read_array(cluster, word.substr(0, bracket));
  if (!elements) return std::move(elements).error().within(word.substr(0, 64));
  const std::string index = word.substr(bracket + 1, word.size() - bracket - 2);
  for (const auto& element : *elements) {
    if (std::to_string(element.at("array_index").get<int>()) == index) return text_of(element, "id");
  }
  return invalid("there is no such element")
      .within(word.substr(0, 64))
      .remedy("`tutti jobs --array " + word.substr(0, bracket) + "` lists them");
}

}  // namespace tutti::cli
