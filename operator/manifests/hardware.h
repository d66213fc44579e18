// The hardware that a job's executors ask for, put into their pods.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::op::manifests {

// Nodes with one kind of device, by the labels that say so. Without a label: any node.
struct DeviceKind {
  std::string label;
  std::vector<std::string> values;  // any of these
  std::string resource;             // by which a pod asks for one such device; empty: none
  std::string memory_label;         // says how much memory a device has, in MiB; empty: no bound
  int64_t min_mebibytes = 0;
};

// Makes the pod ask for nodes with that device, and for one device unless its template does, and for the memory that spec.placement asks
// of a device that is a node. InvalidArgument: the template grants less memory than that.
absl::Status RequestHardware(const job::Placement& placement, const DeviceKind& kind, const std::string& container, nlohmann::json& pod);

// Where the container asks for a device of NVIDIA's, whole ("nvidia.com/gpu") or in part ("nvidia.com/mig-..."), and its image is `plain`,
// it gets `cuda` instead, if that is not empty. An image of the job's own stays.
void UseCudaImage(const std::string& plain, const std::string& cuda, const std::string& container, nlohmann::json& pod);

// Where the container asks for a GPU of NVIDIA's or a part of one, the executor in it computes there or not at all: with the device left to
// itself it would train on the CPU, a hundred times slower, where the image has no CUDA or the node no driver. cuda:0 is the first of those
// that the container is given.
void ComputeOnGpu(const std::string& container, nlohmann::json& pod);

}  // namespace fusionllm::op::manifests
