#include "cli/dispatch.hpp"

int main(int argc, char** argv) {
  return tutti::cli::dispatch(std::vector<std::string>(argv + 1, argv + argc));
}
