#pragma once

#include <string>

namespace zeroplan::executor {

// A shared library that is opened while the program runs. It stays open as long as the process: NVIDIA's do not give back what
// they took when they were loaded.
class SharedLibrary {
 public:
  // `name`: of a file ("libnvidia-ml.so.1", which the loader looks for) or a path. Where it cannot be opened, opened()
  // is false and problem() has the loader's words.
  explicit SharedLibrary(const std::string& name);

  bool opened() const { return handle_ != nullptr; }
  const std::string& problem() const { return problem_; }

  // The function `symbol`, or null where the library has none.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace zeroplan::executor
