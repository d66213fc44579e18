// What spec.model.init.from says of the model beside its parameters: the config.json of Hugging Face's transformers, or the job in the
// manifest of a checkpoint. Shapes tell most sizes, but not the number of heads, and no one wants to write down what lies there already.
//
// Blocks on the disk. Only families with a stored form (lib/models/family.h) have such a description; what lies in an object store is read
// by others, and described here from its text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/job/checks.h"
#include "lib/job/fusion_job.h"
#include "lib/job/parse.h"
#include "lib/models/families.h"

namespace fusionllm::job {

// Whether one of the patterns of spec.model.init.skip or ignore matches the name of a tensor; '*' stands for any text, '?' for one
// character.
bool MatchesAny(const std::vector<std::string>& patterns, absl::string_view tensor);

struct InitialModel {
  std::string file;  // that says it
  bool is_config_json = false;
  const models::Family* family = nullptr;  // with a stored form
  models::ModelSizes sizes;
  std::vector<std::string> warnings;  // a sentence about each, for the user
};

// Of a checkpoint, a folder of checkpoints, a folder as Hugging Face has it or a .safetensors file, as CheckpointReader::Open takes them.
// nullopt: nothing there describes it. Errors: InvalidArgument naming the file, for one that cannot be read or has settings that its family
// does not have, or is of a model of no family.
absl::StatusOr<std::optional<InitialModel>> ReadInitialModel(const std::string& path);
// The same of the text of a config.json and of a manifest; `file` names it.
absl::StatusOr<std::optional<InitialModel>> InitialModelFromConfig(const std::string& text, const std::string& file);
std::optional<InitialModel> InitialModelFromManifest(const std::string& text, const std::string& file);

// Sizes that the job leaves out become those of its start, init.from below `folder` or by `remote`; a preset counts where it is written.
// Reports those that contradict it, each with both values and the file; but not where init.skip has all tensors begin fresh whose shape or
// number differs for it: another vocabulary, more positions, a head of its own, further layers.
void ApplyInitialModel(const std::string& folder, Spec& spec, const Report& report, const RemoteStart& remote = nullptr);

// Whether the job's model, defaults included, is the one that the description at `path` says. Errors: InvalidArgument as above, naming the
// fields, and for a config.json of another family.
absl::Status CheckInitialModel(const FusionJob& job, const std::string& path);

}  // namespace fusionllm::job
