// What keeps one Pod of a job from its work, as the job's conditions say it: where, what, in the words of its cluster, and what to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/lifecycle/observation.h"

namespace fusionllm::op::lifecycle {

// Reasons of the condition Ready, and of Degraded, that say what is wrong with the first Pod that is not ready.
inline constexpr char kImageNotAvailable[] = "ImageNotAvailable";
inline constexpr char kContainerConfigError[] = "ContainerConfigError";
inline constexpr char kVolumeNotMounted[] = "VolumeNotMounted";
inline constexpr char kClaimNotBound[] = "ClaimNotBound";
inline constexpr char kUnschedulable[] = "Unschedulable";
inline constexpr char kOutOfMemory[] = "OutOfMemory";
inline constexpr char kNodeNotReady[] = "NodeNotReady";
inline constexpr char kExecutorsNotReady[] = "ExecutorsNotReady";  // anything else, of an executor
inline constexpr char kBrokerNotReady[] = "BrokerNotReady";        // the same of the broker

inline constexpr char kWaitingForAddress[] = "WaitingForAddress";  // Pods are not made yet

struct PodDiagnosis {
  const char* reason;
  std::string sentence;
};

// Nothing: nothing is known to be wrong with it. `ns`: the job's namespace. A pure function.
std::optional<PodDiagnosis> DiagnosePod(const PodView& pod, const job::Spec& spec, const std::string& ns);

// What a PodView::reason may be for which the sentence says what to do.
std::vector<std::string> ReasonsWithRemedy();

}  // namespace fusionllm::op::lifecycle
