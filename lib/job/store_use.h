// Who of a run needs an object store. Pure.
#pragma once

#include <optional>
#include <string>

#include "lib/base/object_uri.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::job {

// For checkpoints, their copies, or what the run starts from.
inline bool BrokerNeedsStore(const Spec& spec) {
  const auto is_uri = [](const std::optional<std::string>& path) { return path.has_value() && base::IsUri(*path); };
  if (is_uri(spec.model.init.from)) return true;
  if (!spec.checkpoint.has_value()) return false;
  return base::IsUri(spec.checkpoint->path) || base::IsUri(spec.checkpoint->resume) ||
         (spec.checkpoint->replica.has_value() && base::IsUri(spec.checkpoint->replica->path));
}

}  // namespace fusionllm::job
