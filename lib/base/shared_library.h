// Libraries that are loaded when they are first needed, such as those of a GPU, so that a program starts on machines without them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::base {

// Stays loaded until the process ends: such libraries hold threads and state of their own. Thread-safe.
class SharedLibrary {
 public:
  // The first of `names` that the system finds. Errors: FailedPrecondition, naming all of them and what the system said.
  static absl::StatusOr<SharedLibrary> Open(const std::vector<std::string>& names);

  // Sets `function` to the symbol. Errors: FailedPrecondition, naming library and symbol.
  template <typename Function>
  absl::Status Find(const char* symbol, Function*& function) const {
    void* found = nullptr;
    const absl::Status status = Lookup(symbol, found);
    if (status.ok()) function = reinterpret_cast<Function*>(found);
    return status;
  }
  const std::string& name() const { return name_; }

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  absl::Status Lookup(const char* symbol, void*& found) const;

  std::string name_;
  void* handle_;
};

}  // namespace fusionllm::base
