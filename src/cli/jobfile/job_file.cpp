#include "cli/jobfile/job_file.hpp"

#include <utility>

#include "base/config/document.hpp"
#include "base/config/flags.hpp"
#include "base/files/files.hpp"
#include "cli/jobfile/script.hpp"

namespace tutti::jobfile {
namespace {

using config::Document;
using config::Value;

// The flags take lists as they are; here the place of a bad item is still known.
template <class Check>
Result<> check_items(const Document& document, std::string_view key, Check check) {
  const Value* list = document.root.find(key);
  if (list == nullptr) return {};
  const auto check_one = [&](const std::string& text, int line) -> Result<> {
    const auto checked = check(text);
    if (checked) return {};
    return document.error(line, key, checked.error().message()).remedy(checked.error().remedy());
  };
  if (list->kind == Value::Kind::scalar) return check_one(list->scalar, list->line);
  for (std::size_t at = 0; at < list->items.size(); ++at) {
    const std::string prefix = list->kind == Value::Kind::mapping ? list->keys[at] + "=" : "";
    if (auto checked = check_one(prefix + list->items[at].scalar, list->items[at].line); !checked)
      return checked;
  }
  return {};
}

Result<> check_lists(const Document& document) {
  if (auto checked = check_items(document, "env", check_env); !checked) return checked;
  if (auto checked = check_items(document, "after", parse_job); !checked) return checked;
  return check_items(document, "after-success", parse_job);
}

Result<JobFile> parse_yaml(std::string_view text, std::string_view name) {
  auto document = config::parse_document(text, name);
  if (!document) return std::move(document).error();
  const Value* command = document->root.find("command");
  if (command != nullptr && command->kind == Value::Kind::mapping)
    return document->error(command->line, "command", "expected one string or a list of words");
  JobFile file;
  file.is_yaml = true;
  config::Flags flags("run", "", "");
  file.draft.declare(flags);
  flags.add("command", file.draft.command, "");
  flags.add("secrets", file.draft.secrets, "");
  if (auto read = flags.read(*document); !read) return std::move(read).error();
  if (auto checked = check_lists(*document); !checked) return std::move(checked).error();
  if (command != nullptr && command->kind == Value::Kind::scalar) {
    const std::string stem = as_name(name.substr(0, name.rfind('.')));
    if (file.draft.name.empty()) file.draft.name = stem;
    file.draft.command = {"bash", "-c", command->scalar, stem};
  }
  return file;
}

Error neither(std::string_view name) {
  return invalid("this is neither a YAML file nor a script")
      .within(name)
      .remedy("name it FILE.yaml, or begin it with #!/bin/bash");
}

}  // namespace

Result<JobFile> parse_job_file(std::string_view text, std::string_view name) {
  if (text.size() > job_file_bytes_max) return invalid("the file is larger than 1 MiB").within(name);
  if (name.ends_with(".yaml") || name.ends_with(".yml")) return parse_yaml(text, name);
  if (text.starts_with("#!") || name.ends_with(".sh")) return parse_script(text, name);
  return neither(name);
}

Result<JobFile> read_job_file(const std::filesystem::path& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    return invalid("this is a folder, not a file").within(path.string());
  const auto text = files::read_existing_file(path.string(), job_file_bytes_max);
  if (!text) return text.error();
  return parse_job_file(*text, path.filename().string());
}

}  // namespace tutti::jobfile
