#include "executor/machine/shared_library.hpp"

#include <dlfcn.h>

namespace zeroplan::executor {

SharedLibrary::SharedLibrary(const std::string& name)
    : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
  if (handle_ == nullptr) problem_ = dlerror();
}

void* SharedLibrary::address(const char* symbol) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

}  // namespace zeroplan::executor
