#include "lib/base/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::base {

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const std::vector<std::string>& names) {
  std::string said;
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return SharedLibrary(name, handle);
    if (const char* error = dlerror(); error != nullptr && said.empty()) said = error;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot load ", absl::StrJoin(names, " or "), ": ", said, " (is its folder in LD_LIBRARY_PATH?)"));
}

absl::Status SharedLibrary::Lookup(const char* symbol, void*& found) const {
  found = dlsym(handle_, symbol);
  if (found != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name_, " has no function '", symbol, "': another version is needed"));
}

}  // namespace fusionllm::base
