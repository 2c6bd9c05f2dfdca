#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

// Lowest first. A module uses its own layer and those below it; `workers` and `tools` stand beside the pile,
// and tools (tests among them) may use all of it.
constexpr std::array<std::string_view, 7> pile{"base",     "pure",   "host", "ports",
                                               "adapters", "shells", "front"};

int height(std::string_view layer) {
  const auto found = std::find(pile.begin(), pile.end(), layer);
  return found == pile.end() ? -1 : static_cast<int>(found - pile.begin());
}

bool may_use(const Module& user, const Module& used) {
  // The rest of what workers may use is a matter of what is built with them.
  if (user.layer == "workers") return used.layer != "front" && used.layer != "tools";
  if (user.layer == "tools") return used.layer != "workers";
  return height(used.layer) >= 0 && height(used.layer) <= height(user.layer);
}

const Module* by_name(const std::vector<Module>& modules, std::string_view name) {
  const auto found =
      std::find_if(modules.begin(), modules.end(), [&](const Module& module) { return module.name == name; });
  return found == modules.end() ? nullptr : &*found;
}

// Does `from` reach `target` through what is used?
bool reaches(const std::vector<Module>& modules, const Module& from, std::string_view target,
             std::set<std::string>& seen) {
  for (const std::string& name : from.uses) {
    if (name == target) return true;
    const Module* used = by_name(modules, name);
    if (used != nullptr && seen.insert(name).second && reaches(modules, *used, target, seen)) return true;
  }
  return false;
}

// "store/sqlite/x.hpp" is a header of the module "store/sqlite".
const Module* module_of_include(const std::vector<Module>& modules, const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? nullptr : by_name(modules, path.substr(0, slash));
}

// Libraries whose headers are dear to compile or pull a framework in: they stay inside the module that needs
// them.
bool is_heavy(const Include& include) {
  static constexpr std::array<std::string_view, 11> heavy{
      "boost/",  "google/protobuf/",  "torch/",   "ATen/",    "c10/", "CLI/", "yaml-cpp/",
      "spdlog/", "nlohmann/json.hpp", "openssl/", "sqlite3.h"};
  return include.path.ends_with(".pb.h") ||
         std::any_of(heavy.begin(), heavy.end(),
                     [&](std::string_view prefix) { return include.path.starts_with(prefix); });
}

bool is_torch(const Include& include) {
  return include.path.starts_with("torch/") || include.path.starts_with("ATen/") ||
         include.path.starts_with("c10/");
}

// The file of a quoted include, "" if it is none of ours.
std::string file_of(const std::vector<Module>& modules, const std::string& include) {
  const Module* module = module_of_include(modules, include);
  return module == nullptr ? "" : module->folder + include.substr(include.rfind('/'));
}

class BorderWalk {
 public:
  BorderWalk(const Tree& tree, const std::vector<Module>& modules) : tree_(tree), modules_(modules) {}

  // Reports heavy includes in headers of other modules that `path` reaches.
  void walk(const std::string& path, const Module& home, std::set<std::string>& seen,
            std::set<Finding>& findings) {
    const auto file = tree_.files.find(path);
    if (file == tree_.files.end() || !seen.insert(path).second) return;
    const Module* module = owner(modules_, path);
    for (const Include& include : includes(path, file->second)) {
      if (include.quoted && !include.path.ends_with(".pb.h"))
        walk(file_of(modules_, include.path), home, seen, findings);
      if (is_heavy(include) && module != nullptr && module->name != home.name && module->layer != "tools") {
        findings.insert({path, include.line, "borders",
                         "<" + include.path + "> in this header reaches the module " + home.name +
                             "; keep it behind a forward declaration or a pimpl"});
      }
    }
  }

 private:
  const std::vector<Include>& includes(const std::string& path, const Lines& lines) {
    const auto known = cache_.find(path);
    return known != cache_.end() ? known->second : cache_.emplace(path, read_includes(lines)).first->second;
  }

  const Tree& tree_;
  const std::vector<Module>& modules_;
  std::map<std::string, std::vector<Include>> cache_;
};

}  // namespace

Findings check_layers(const std::vector<Module>& modules) {
  Findings findings;
  for (const Module& module : modules) {
    const auto report = [&](const std::string& message) {
      findings.push_back({module.file, module.line, "layers", message});
    };
    if (height(module.layer) < 0 && module.layer != "workers" && module.layer != "tools") {
      report("the module " + module.name + " has no known layer: '" + module.layer + "'");
      continue;
    }
    for (const std::string& name : module.uses) {
      const Module* used = by_name(modules, name);
      if (used == nullptr) {
        report("the module " + module.name + " uses " + name + ", which is not declared");
      } else if (!may_use(module, *used)) {
        report("the module " + module.name + " (" + module.layer + ") may not use " + name + " (" +
               used->layer + ")");
      } else if (module.layer != "tools" && module.is_for_workers && !used->is_for_workers) {
        report("the build of the workers alone has the module " + module.name + ", which uses " + name +
               ", and leaves that out");
      }
    }
    std::set<std::string> seen;
    if (reaches(modules, module, module.name, seen))
      report("the module " + module.name + " uses itself in a circle");
  }
  return findings;
}

Findings check_includes(const Tree& tree, const std::vector<Module>& modules) {
  Findings findings;
  for (const auto& entry : tree.files) {
    const std::string& path = entry.first;
    if (!has_ending(path, {".hpp", ".cpp", ".cu"})) continue;
    const Module* module = owner(modules, path);
    if (module == nullptr) continue;
    for (const Include& include : read_includes(entry.second)) {
      const auto report = [&, at = include.line](const std::string& message) {
        findings.push_back({path, at, "includes", message});
      };
      if (is_torch(include) && module->layer != "workers")
        report("only the workers layer may include <" + include.path + ">");
      if (!include.quoted || include.path.ends_with(".pb.h")) continue;
      const Module* used = module_of_include(modules, include.path);
      const bool is_test = has_ending(path, {"_test.cpp", "_test.hpp", "_fuzz.cpp"});
      if (used == nullptr || !tree.has(file_of(modules, include.path))) {
        report("\"" + include.path + "\" is no header of a declared module; write \"module/header.hpp\"");
      } else if (used != module && !contains(module->uses, used->name) &&
                 !(is_test && contains(module->tests_use, used->name))) {
        report("the module " + module->name + " does not declare that it uses " + used->name);
      }
    }
  }
  return findings;
}

Findings check_borders(const Tree& tree, const std::vector<Module>& modules) {
  std::set<Finding> findings;
  BorderWalk border(tree, modules);
  for (const auto& entry : tree.files) {
    const Module* home = owner(modules, entry.first);
    if (home == nullptr || !has_ending(entry.first, {".hpp", ".cpp", ".cu"})) continue;
    std::set<std::string> seen;
    border.walk(entry.first, *home, seen, findings);
  }
  return {findings.begin(), findings.end()};
}

}  // namespace tutti::tidy
