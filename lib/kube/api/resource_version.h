// Resource versions: decimal numbers of any length that an API server gives to the states of one kind of object.
//
// They are compared as text, not as machine integers: they may outgrow 64 bits. Only versions of the same resource of the same server mean
// anything to each other. Thread-safe.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace fusionllm::kube {

// Digits only, not "0" (which means "any" in a request and is no state) and without leading zeros.
bool IsResourceVersion(absl::string_view text);

// < 0, 0 or > 0 as `a` is older than, the same as or newer than `b`; nothing if one of them is no resource version.
std::optional<int> CompareResourceVersions(absl::string_view a, absl::string_view b);

}  // namespace fusionllm::kube
