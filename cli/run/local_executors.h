// The executors that a run starts on this machine: which, how they share its cores, and what to do where they are too few.
// Pure functions, but that names of devices are looked up on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/run/run_session.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"

namespace fusionllm::cli {

inline constexpr size_t kMaxLocalDevices = 256;  // an executor is a process
// "cpu,cuda:0": its entries. Errors: InvalidArgument for one that is empty, by its place, or no device's name, and for too many.
absl::StatusOr<std::vector<std::string>> ParseDeviceList(absl::string_view text);

// One for each device of the topology, else for each of `devices`, else one; in a run with machines that join these have the data.
std::vector<LocalExecutor> LocalExecutorsOf(const std::optional<job::Topology>& topology, const std::vector<std::string>& devices);

// Executors that compute on the CPU have equal parts of `cores`, a thread at least, where the job does not say how many threads.
void ShareCores(const std::vector<std::string>& devices, int64_t cores, job::Executors& executors);
// A sentence where they have more threads than there are cores, after ShareCores. Empty: each has cores of its own.
std::string OversubscriptionWarning(const std::vector<std::string>& devices, int64_t cores, const job::Executors& executors);

// Cores that executors on this machine need for their speed: of emulated devices their share of them; without a topology those of
// `devices`: `threads` each (spec.executors.threads; 0: all there are) on the CPU, one each on GPUs. No more than the process may use.
double WantedCores(const std::optional<job::Topology>& topology, int64_t threads, const std::vector<std::string>& devices = {"auto"});

// What to do about a plan that was refused for want of executors, as a sentence: more of them here, fewer held back, higher limits of the
// job, or less asked for. `starts_executors`: the command has --device; else a topology alone describes more. Empty where none of these is
// why.
std::string AdviseOnTooFewExecutors(const job::Spec& spec, const std::optional<job::Topology>& topology,
                                    const std::vector<std::string>& devices, bool starts_executors = true);
// The same behind a refusal of any reason: ". To have enough executors, ..", or nothing.
std::string AdviceSuffix(absl::string_view reason, const job::Spec& spec, const std::optional<job::Topology>& topology,
                         const std::vector<std::string>& devices, bool starts_executors = true);
// The same of a run that machines join (--listen), which counts those that are there after `join_timeout_seconds`, if given.
std::string JoinAdvice(absl::string_view reason, const job::Spec& spec, std::optional<double> join_timeout_seconds);

}  // namespace fusionllm::cli
