// Why an API server will not have what a job needs, as the job's status says it. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::controller {

// What Refusal::reason may be besides kQuotaExceeded, and so the condition Scheduled when something is refused.
inline constexpr char kInvalidTemplate[] = "InvalidTemplate";            // the API server finds a Pod's template wrong
inline constexpr char kInvalidObject[] = "InvalidObject";                // the same of something else that is made for the job
inline constexpr char kNamespaceTerminating[] = "NamespaceTerminating";  // nothing can be made there any more
inline constexpr char kNamespaceMissing[] = "NamespaceMissing";
inline constexpr char kObjectMissing[] = "ObjectMissing";  // an object without which its Pods do not start, or a key of one
inline constexpr char kConflict[] = "Conflict";            // something has the name of an object of ours and is not ours
inline constexpr char kForbidden[] = "Forbidden";          // a right is missing, or an admission policy, Pod security say

struct Refused {
  lifecycle::Refusal refusal;
  absl::Duration retry_after;  // after which it is worth asking again; infinite: not before the job's spec changes
};

// Nothing: it is no refusal, but something that passes by itself (no connection, a busy server, an object that changed meanwhile).
// `where`: how the cluster is called, at the beginning of a sentence: "The hub", "Cluster tokyo".
std::optional<Refused> RefusalOf(const absl::Status& status, const std::string& where);

// The same error, marked: it was about a Pod, which is the job's own words for the most part.
absl::Status MarkPodError(absl::Status status);

// Objects that Pods name are not in the cluster, or not in their namespace: which ones, in words (missing_references.h).
Refused RefusedObjects(const std::string& where, const std::string& missing);

// A template of which no Pod can be made, as BrokerPod() and ExecutorPod() say.
Refused RefusedTemplate(const absl::Status& status);

}  // namespace fusionllm::op::controller
