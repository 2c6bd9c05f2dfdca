#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "tidy/rules.hpp"

namespace tutti::tidy {
namespace {

constexpr std::size_t readme_lines_max = 60;  // one screen

// "control" of the module "control/store/sqlite".
std::string room_of(const std::string& module) { return module.substr(0, module.find('/')); }

const Room* by_name(const std::vector<Room>& rooms, const std::string& name) {
  const auto found =
      std::find_if(rooms.begin(), rooms.end(), [&](const Room& room) { return room.name == name; });
  return found == rooms.end() ? nullptr : &*found;
}

bool reaches(const std::vector<Room>& rooms, const Room& from, const std::string& target,
             std::set<std::string>& seen) {
  return std::any_of(from.uses.begin(), from.uses.end(), [&](const std::string& name) {
    if (name == target) return true;
    const Room* used = by_name(rooms, name);
    return used != nullptr && seen.insert(name).second && reaches(rooms, *used, target, seen);
  });
}

// A README of one screen that names each module of its room.
Findings check_readme(const Tree& tree, const Room& room, const std::vector<const Module*>& modules) {
  const std::string path = "src/" + room.name + "/README.md";
  const auto found = tree.files.find(path);
  if (found == tree.files.end())
    return {{room.file, room.line, "rooms", "the room " + room.name + " has no " + path}};
  Findings findings;
  const Lines& lines = found->second;
  if (lines.size() > readme_lines_max) {
    findings.push_back({path, static_cast<int>(readme_lines_max) + 1, "rooms",
                        "the page of a room fits a screen: " + std::to_string(readme_lines_max) + " lines"});
  }
  for (const Module* module : modules) {
    const std::string shown =
        "`" + (module->name == room.name ? module->name : module->name.substr(room.name.size() + 1)) + "`";
    const bool named = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(shown) != std::string::npos;
    });
    if (!named) findings.push_back({path, 1, "rooms", "the module " + shown + " is not named"});
  }
  return findings;
}

// Which other rooms the modules of a room use.
std::set<std::string> used_rooms(const std::vector<const Module*>& modules) {
  std::set<std::string> used;
  for (const Module* module : modules) {
    for (const std::vector<std::string>* names : {&module->uses, &module->tests_use}) {
      for (const std::string& name : *names) used.insert(room_of(name));
    }
  }
  return used;
}

}  // namespace

Findings check_rooms(const Tree& tree, const std::vector<Room>& rooms, const std::vector<Module>& modules) {
  Findings findings;
  for (const Module& module : modules) {
    if (module.folder.starts_with("src/") && by_name(rooms, room_of(module.name)) == nullptr) {
      findings.push_back(
          {module.file, module.line, "rooms",
           "the module " + module.name + " stands in no room that src/CMakeLists.txt declares"});
    }
  }
  for (const Room& room : rooms) {
    const auto report = [&](const std::string& message) {
      findings.push_back({room.file, room.line, "rooms", message});
    };
    std::vector<const Module*> inside;
    for (const Module& module : modules) {
      if (room_of(module.name) == room.name && module.folder.starts_with("src/")) inside.push_back(&module);
    }
    const auto used = used_rooms(inside);
    for (const std::string& name : used) {
      if (name != room.name && !contains(room.uses, name))
        report("modules of the room " + room.name + " use the room " + name + ", which it may not");
    }
    for (const std::string& name : room.uses) {
      if (by_name(rooms, name) == nullptr) report("there is no room " + name);
      if (!used.contains(name)) report("the room " + room.name + " does not use the room " + name);
    }
    std::set<std::string> seen;
    if (reaches(rooms, room, room.name, seen)) report("the room " + room.name + " uses itself in a circle");
    const auto readme = check_readme(tree, room, inside);
    findings.insert(findings.end(), readme.begin(), readme.end());
  }
  return findings;
}

}  // namespace tutti::tidy
