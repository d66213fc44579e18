// What log lines belong to while a worker has a key of jobs and members.
#pragma once

#include "absl/strings/str_cat.h"
#include "lib/base/log_context.h"
#include "lib/kube/queue/work_key.h"

namespace fusionllm::op::federation {

// `job` as NAMESPACE/NAME, `cluster` of a member; those that the key names.
inline base::LogFields LogFieldsOf(const kube::WorkKey& key) {
  base::LogFields fields;
  if (!key.ns.empty()) fields.emplace_back("job", absl::StrCat(key.ns, "/", key.name));
  if (!key.cluster.empty()) fields.emplace_back("cluster", key.cluster);
  return fields;
}

}  // namespace fusionllm::op::federation
