// FusionJob and Topology from YAML and back.
//
// Every error is InvalidArgument with up to 20 findings, one a line, in the order of the file:
//   job.yaml:12: spec.training.steps: must be at least 0, got -3
//   --set spec.training.steps: must be at least 0, got -3
// (Load... also NotFound when the file cannot be read.) What is returned is valid and has its defaults filled in. Unknown and duplicate
// keys are errors. Limits on the text: document.h. Thread-safe; no exception leaves this library.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/fusion_job.h"
#include "lib/job/topology.h"

namespace fusionllm::job {

struct Node;           // document.h
class FieldLocations;  // field_locations.h
struct InitialModel;   // initial_model.h

// What an object store says of the model at a URI; nullopt: nothing.
using RemoteStart = std::function<absl::StatusOr<std::optional<InitialModel>>(const std::string& uri)>;

// file_name is used in messages only; paths in the job stay as they are written.
// overrides: "spec.training.steps=50"; the value is YAML, "spec.strategy.pins[0].device=lab-1" reaches into a list.
absl::StatusOr<FusionJob> ParseFusionJob(absl::string_view yaml, absl::string_view file_name, std::span<const std::string> overrides = {});

// Reads a file, and makes data, graph and init.from paths, which are relative to the job file, absolute: the job can then be handed to a
// process with another working directory. Sizes that a GPT-2 leaves out are those of the model it starts from (initial_model.h). A graph
// file that cannot be read is a finding. Blocks on the disk. `places` (may be null) gets where the fields of the job stand, for what is
// found wrong with them later. `remote_start` describes a start that lies in an object store; without it nothing is looked at there.
absl::StatusOr<FusionJob> LoadFusionJob(const std::string& path, std::span<const std::string> overrides = {},
                                        FieldLocations* places = nullptr, const RemoteStart& remote_start = nullptr);

// From a tree that is no file's, such as a Kubernetes object's spec: messages name the field alone.
absl::StatusOr<FusionJob> FusionJobFromTree(const Node& root);

absl::StatusOr<Topology> ParseTopology(absl::string_view yaml, absl::string_view file_name);
absl::StatusOr<Topology> LoadTopology(const std::string& path);

// data.path, data.validation.path, model.graph.file and model.init.from under `folder` unless they are absolute or URIs.
void ResolvePaths(absl::string_view folder, FusionJob& job);

// A complete document: every field that applies, defaults included. Parses back to an equal value.
std::string ToYaml(const FusionJob& job);
std::string ToYaml(const Topology& topology);

}  // namespace fusionllm::job
