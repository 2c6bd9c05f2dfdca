// A shared library that a server may or may not have, opened at run time. Any thread.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

namespace tutti::devices {

class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}

  bool found() const { return handle_ != nullptr; }

  // Sets `function` to the symbol; false if the library does not have it.
  template <class Function>
  bool load(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(dlsym(handle_.get(), symbol));
    return function != nullptr;
  }

 private:
  struct Close {
    void operator()(void* handle) const { dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
};

}  // namespace tutti::devices
