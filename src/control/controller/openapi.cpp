#include <nlohmann/json.hpp>

#include "base/version/version.hpp"
#include "control/controller/api.hpp"

namespace tutti::controller {
namespace {

using nlohmann::json;

json operation(const std::string& summary, const std::string& answer) {
  return {{"summary", summary},
          {"responses",
           {{"200", {{"description", answer}}},
            {"400", {{"description", "the request is wrong: {error: {message, context, remedy}}"}}},
            {"401", {{"description", "no token, or a wrong one"}}},
            {"429", {{"description", "too often from one address: see Retry-After"}}},
            {"503", {{"description", "it cannot be done now"}}}}}};
}

json with(json described, std::initializer_list<std::pair<const char*, const char*>> query) {
  for (const auto& [name, meaning] : query) {
    described["parameters"].push_back(
        {{"name", name}, {"in", "query"}, {"description", meaning}, {"schema", {{"type", "string"}}}});
  }
  return described;
}

json of(json item, const char* parameter) {
  item["parameters"] = {
      {{"name", parameter}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
  return item;
}

}  // namespace

std::string openapi_json() {
  json paths;
  paths["/api/v1/health"]["get"] = operation("Is the controller alive? Needs no token.", "{alive}");
  paths["/api/v1/status"]["get"] = operation("The cluster in a few numbers", "StatusView");
  paths["/api/v1/jobs"]["get"] = with(operation("Jobs, newest first, a page at a time", "JobList"),
                                      {{"all", "1: finished ones too"},
                                       {"array", "only the elements of this job's array"},
                                       {"limit", "jobs a page, at most 1000"},
                                       {"before", "the `next` of the page before"}});
  paths["/api/v1/jobs"]["post"] =
      operation("Submits a job, or all elements of an array: SubmitRequest", "SubmitReply");
  paths["/api/v1/jobs/{id}"] = of({{"get", operation("One job with its ranks", "JobView")}}, "id");
  paths["/api/v1/jobs/{id}/cancel"] =
      of({{"post", with(operation("Ends a job", "SubmitReply: what is being ended"),
                        {{"array", "1: every element of its array"}, {"by", "who, for the reason"}})}},
         "id");
  paths["/api/v1/jobs/{id}/logs"] = of(
      {{"get",
        with(operation("Logs as server-sent events: log {rank, text}, job, note {text}", "text/event-stream"),
             {{"follow", "1: until the job ends"},
              {"rank", "only this rank"},
              {"tail", "only the last N lines of each rank"}})}},
      "id");
  paths["/api/v1/nodes"]["get"] = operation("Every node with its devices", "NodeList");
  paths["/api/v1/nodes/{name}"] = of({{"get", operation("One node", "NodeView")}}, "name");
  paths["/api/v1/nodes/{name}/drain"] =
      of({{"post", operation("Nothing new lands; {now: true} moves its gangs", "SubmitReply")}}, "name");
  paths["/api/v1/nodes/{name}/resume"] = of({{"post", operation("Takes work again", "SubmitReply")}}, "name");
  paths["/api/v1/jobs/{id}/explain"] =
      of({{"get", operation("Why it waits, when it will start, what would start it sooner", "ExplainView")}},
         "id");
  paths["/api/v1/explain"]["post"] =
      operation("The same of a job that is not submitted: SubmitRequest", "ExplainView");
  paths["/api/v1/queues"]["get"] = operation("Queues and who uses what", "QueueList");
  paths["/api/v1/queues/{name}"] =
      of({{"put", operation("Creates a queue, or changes what the body names: QueueRequest", "SubmitReply")},
          {"delete", operation("Removes a queue without parts and unfinished jobs", "SubmitReply")}},
         "name");
  paths["/api/v1/fabric"]["get"] = operation("The links between nodes as last measured", "FabricView");
  paths["/api/v1/fabric"]["put"] = operation("Replaces them by a new measurement: FabricRequest, at most " +
                                                 std::to_string(cluster::fabric_links_max) + " links",
                                             "SubmitReply");
  paths["/api/v1/events"]["get"] =
      operation("Every change as server-sent events: job, node", "text/event-stream");
  paths["/api/v1/blobs/missing"]["post"] =
      operation("Which of these hashes are not stored yet?", "a list of hashes");
  paths["/api/v1/blobs/{hash}"] = of({{"put", operation("Stores content under its SHA-256", "{}")},
                                      {"get", operation("Stored content", "bytes")}},
                                     "hash");
  const json document{
      {"openapi", "3.0.3"},
      {"info",
       {{"title", "tutti"},
        {"version", std::string(version())},
        {"description", "The messages are those of proto/tutti.proto, in protobuf's JSON mapping."}}},
      {"security", {{{"token", json::array()}}}},
      {"components", {{"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"paths", paths}};
  return document.dump(2) + "\n";
}

}  // namespace tutti::controller
