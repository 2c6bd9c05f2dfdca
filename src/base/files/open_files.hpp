// How many files this process may have open. Systems say 1024 unless it asks for more, for the sake of
// programs that are older than larger numbers; each connection and each rank that is watched is one of them.
// Any thread.
#pragma once

#include <cstddef>

namespace tutti::files {

struct OpenFiles {
  std::size_t before = 0;    // what the process was given: for the programs that it starts
  std::size_t most = 1'024;  // what it may have now
};

// As many as the system lets it have: to be called once, by whoever serves others.
OpenFiles raise_open_files();

// Of so many files, those that connections or ranks may take: the rest is for all else that is opened.
std::size_t files_to_give(std::size_t most);

// Whether so many more can be opened now, whatever was inherited.
bool can_open(std::size_t files);

// For a child before its program: what its parent was given before it raised that. 0 changes nothing.
void set_open_files(std::size_t soft_limit);

}  // namespace tutti::files
