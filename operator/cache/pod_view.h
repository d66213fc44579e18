// What the operator keeps of a Pod.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::cache {

// From the JSON of a Pod as an API server gives it. `cluster`: where it was read; a label does not count, for those who may write pods may
// write labels. InvalidArgument when it is none, or none of the operator's.
absl::StatusOr<lifecycle::PodView> ReadPod(absl::string_view json, const std::string& cluster);

// Whether it is this job's, whose owner ConfigMaps have or had these uids: its namespace, name and owner are, which its labels alone do not
// make so.
bool IsPodOf(const lifecycle::PodView& pod, const manifests::JobIdentity& job, const std::set<std::string>& owner_config_maps);

}  // namespace fusionllm::op::cache
