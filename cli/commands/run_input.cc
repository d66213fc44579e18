#include "cli/commands/run_input.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands/remote_start.h"
#include "lib/base/exit_code.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/initial_model.h"
#include "lib/job/model_config.h"
#include "lib/models/families.h"
#include "lib/objectstore/fetch.h"
#include "lib/workload/forward_graph.h"
#include "lib/workload/remote_start.h"
#include "lib/workload/stored_parameters.h"

namespace fusionllm::cli {
namespace {

// Of what lies in an object store only whether it is there: it is fetched by who reads it.
absl::Status CheckObjects(const job::Spec& spec, bool reads_start, bool& data_in_store) {
  std::vector<std::pair<std::string, std::string>> uris;  // with their fields
  const auto add = [&](const char* field, const std::string& path) {
    if (base::IsUri(path)) uris.emplace_back(field, path);
  };
  for (const std::string& path : spec.data.path) add("spec.data.path", path);
  if (spec.data.validation) {
    for (const std::string& path : spec.data.validation->path) add("spec.data.validation.path", path);
  }
  data_in_store = !uris.empty();
  if (reads_start && spec.model.init.from) add("spec.model.init.from", *spec.model.init.from);
  if (uris.empty()) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(objectstore::StoreSettings settings, objectstore::SettingsFrom(objectstore::ProcessEnvironment));
  objectstore::ObjectStore store(std::move(settings), {.retried = PrintRetry});
  for (const auto& [field, text] : uris) {
    FUSIONLLM_ASSIGN_OR_RETURN(const base::ObjectUri uri, base::ParseObjectUri(text));
    const absl::Status there = objectstore::CheckExists(store, uri);
    if (absl::IsUnavailable(there)) return there;
    if (!there.ok()) return base::AsBadInput(absl::Status(there.code(), absl::StrCat(field, ": ", there.message())));
  }
  return absl::OkStatus();
}

// Where `path`, which does not exist, was perhaps meant to be: it was read as relative to the job's folder, not to the present one.
std::string PerhapsHere(const std::string& path, const std::string& base) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::absolute(std::filesystem::path(path).lexically_relative(base), error);
  if (error || here == path || !std::filesystem::exists(here, error)) return "";
  return absl::StrCat("; paths in a job are relative to the folder of its file: write ", here.lexically_normal().string());
}

// Which field names data that is not there.
absl::Status CheckDataIsThere(const job::Data& data, const std::string& base) {
  const auto check = [&](const char* field, const std::vector<std::string>& paths) {
    std::error_code error;
    for (const std::string& path : paths) {
      if (base::IsUri(path) || std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found) continue;
      return absl::InvalidArgumentError(absl::StrCat(field, ": ", path, " does not exist", PerhapsHere(path, base)));
    }
    return absl::OkStatus();
  };
  FUSIONLLM_RETURN_IF_ERROR(check("spec.data.path", data.path));
  return data.validation ? check("spec.data.validation.path", data.validation->path) : absl::OkStatus();
}

// "openai-community/gpt2" is no folder to users of transformers.
std::string HubAdvice(const std::string& path, const std::string& base) {
  const std::filesystem::path name = std::filesystem::path(path).lexically_relative(base);
  if (name.empty()) return "";
  const bool like_a_name = std::distance(name.begin(), name.end()) <= 2 && *name.begin() != ".." && name.extension() != ".safetensors";
  if (!like_a_name) return "";
  return absl::StrCat(
      "; nothing is fetched from the Hugging Face hub: if that is what it names, fetch its files first, as by `hf download ", name.string(),
      " --local-dir ", name.filename().string(), "`, and name that folder");
}

// The files that the job starts from are there, and whole.
absl::Status CheckStart(const job::Spec& spec, const std::string& base) {
  const std::optional<std::string>& from = spec.model.init.from;
  if (!from.has_value() || base::IsUri(*from)) return absl::OkStatus();
  std::error_code error;
  if (std::filesystem::status(*from, error).type() == std::filesystem::file_type::not_found) {
    const std::string here = PerhapsHere(*from, base);
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model.init.from: ", *from, " does not exist", here.empty() ? HubAdvice(*from, base) : here));
  }
  const absl::Status whole = base::AsBadInput(checkpoint::VerifyCheckpoint(*from));
  return whole.ok() ? whole : absl::Status(whole.code(), absl::StrCat("spec.model.init.from: ", whole.message()));
}

absl::StatusOr<std::vector<std::string>> CheckRemoteStartFits(const job::FusionJob& job) {
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::Graph graph, workload::BuildForwardGraph(job, ""));
  return workload::CheckRemoteStart(job, graph, *job.spec.model.init.from, PrintRetry);
}

absl::StatusOr<std::vector<std::string>> CheckLocalStartFits(const job::FusionJob& job) {
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::Graph graph, workload::BuildForwardGraph(job, ""));
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader start, checkpoint::CheckpointReader::Open(*job.spec.model.init.from));
  return workload::CheckStart(job, graph, start);
}

// Whether the file that the job starts from is of its model, and what is worth a word about it. One in an object store is known by its
// headers; the broker looks again once it has it.
absl::StatusOr<std::vector<std::string>> CheckStartFits(const job::FusionJob& job) {
  const std::optional<std::string>& from = job.spec.model.init.from;
  if (!from.has_value()) return std::vector<std::string>();
  auto fits = base::IsUri(*from) ? CheckRemoteStartFits(job) : CheckLocalStartFits(job);
  if (absl::IsUnavailable(fits.status())) return fits.status();  // of the store: another time, perhaps
  fits = base::AsBadInput(std::move(fits));
  if (!fits.ok()) return absl::Status(fits.status().code(), absl::StrCat("spec.model.init.from: ", fits.status().message()));
  for (std::string& warning : *fits) warning = absl::StrCat("spec.model.init.from: ", warning);
  return fits;
}

// Tables that somebody meant to fill, such as those of rotary positions, look like constants of zero. A checkpoint that the run goes on
// from may have filled them: then the warning is wrong.
std::string FrozenZerosWarning(const workload::Workload& workload) {
  if (workload.job.spec.model.init.from.has_value() || workload.job.spec.training.steps == 0) return "";
  constexpr size_t kMaxNamed = 6;
  const opdag::Graph& graph = workload.training.graph;
  const auto is_zero = [&](opdag::ParameterId id) {
    const opdag::Parameter& parameter = graph.parameter(id);
    return !parameter.trainable && parameter.initializer.kind == opdag::Initializer::Kind::kZeros;
  };
  std::vector<std::string> names;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& op = graph.op(id);
    if (op.kind != opdag::OpKind::kEmbedding || !std::all_of(op.parameters.begin(), op.parameters.end(), is_zero)) continue;
    names.push_back(absl::StrCat("'", op.name, "'"));
  }
  if (names.empty()) return "";
  const size_t more = names.size() - std::min(names.size(), kMaxNamed);
  names.resize(names.size() - more);
  return absl::StrCat(
      "spec.model.graph: embedding ", absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "",
      ": tables of frozen zeros, which no spec.model.init.from fills (docs/tasks/own-graph.md fills those of rotary positions)");
}

// cross_entropy takes the softmax itself: of probabilities its gradients are small, and training is slow without saying why.
std::string ProbabilitiesWarning(const workload::Workload& workload) {
  const opdag::Graph& graph = workload.training.graph;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& loss = graph.op(id);
    if (loss.kind != opdag::OpKind::kCrossEntropy) continue;
    const opdag::Op& given = graph.op(graph.value(loss.inputs[0]).producer);
    if (given.kind != opdag::OpKind::kSoftmax && given.kind != opdag::OpKind::kSigmoid) continue;
    return absl::StrCat("spec.model.graph: cross_entropy '", loss.name, "' takes the softmax of its logits itself, and '", given.name,
                        "' is a ", opdag::Name(given.kind), " in front of it; give it what '", given.name, "' is given");
  }
  return "";
}

// Labels that nothing reads: the loss was given something else.
std::string UnreadPlaceholderWarning(const workload::Workload& workload) {
  const opdag::Graph& graph = workload.training.graph;
  for (opdag::OpId id = 0; id < workload.training.forward_ops; ++id) {
    const opdag::Op& op = graph.op(id);
    if (op.kind != opdag::OpKind::kPlaceholder || !graph.value(op.outputs[0]).consumers.empty()) continue;
    return absl::StrCat("spec.model.graph: nothing reads the placeholder '", op.name, "' (", op.attributes.Text("role"),
                        "): is the loss given what it should be?");
  }
  return "";
}

// Some sizes leave no trace in the shapes of parameters: heads.
std::string UnknownHeadsWarning(const workload::Workload& workload) {
  const job::Model& model = workload.job.spec.model;
  const models::Family* const family = job::FamilyOf(model);
  if (family == nullptr || family->hugging_face_format() == nullptr || !model.init.from.has_value() || base::IsUri(*model.init.from))
    return "";
  std::error_code error;
  if (!std::filesystem::exists(*model.init.from, error)) return "";
  const absl::StatusOr<std::optional<job::InitialModel>> described = job::ReadInitialModel(*model.init.from);
  if (!described.ok() || described->has_value()) return "";
  const absl::StatusOr<job::ResolvedModel> resolved = job::ResolveModel(workload.job.spec);
  if (!resolved.ok()) return "";
  std::vector<std::string> what, fields;
  for (const models::StoredSize& size : family->hugging_face_format()->sizes) {
    const std::optional<int64_t>& value = resolved->sizes.settings.*size.value;
    if (size.absent_in_shapes == nullptr || !value) continue;
    what.emplace_back(size.absent_in_shapes);
    fields.push_back(absl::StrCat("spec.model.config.", size.field, ": ", *value));
  }
  if (fields.empty()) return "";
  return absl::StrCat("spec.model.init.from: nothing beside ", *model.init.from, " says how many ", absl::StrJoin(what, " and "),
                      " its model has (a config.json would), so ", absl::StrJoin(fields, " and "), fields.size() == 1 ? " is" : " are",
                      " not checked");
}

}  // namespace

std::vector<std::string> ModelWarnings(const workload::Workload& workload) {
  std::vector<std::string> warnings;
  for (std::string (*const warning)(const workload::Workload&) :
       {FrozenZerosWarning, ProbabilitiesWarning, UnreadPlaceholderWarning, UnknownHeadsWarning}) {
    if (std::string text = warning(workload); !text.empty()) warnings.push_back(std::move(text));
  }
  return warnings;
}

absl::StatusOr<CheckedInput> CheckInput(const job::FusionJob& job, const std::string& base, bool reads_start) {
  CheckedInput input;
  bool data_in_store = false;
  FUSIONLLM_RETURN_IF_ERROR(CheckObjects(job.spec, reads_start, data_in_store));
  if (reads_start) FUSIONLLM_RETURN_IF_ERROR(CheckStart(job.spec, base));
  FUSIONLLM_ASSIGN_OR_RETURN(input.workload, workload::Resolve(job, ""));  // loaded paths are absolute
  if (reads_start) {
    FUSIONLLM_ASSIGN_OR_RETURN(input.of_start, CheckStartFits(job));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckDataIsThere(job.spec.data, base));
  input.warnings = ModelWarnings(*input.workload);
  if (data_in_store) return input;
  const auto opened = workload::DatasetSource::Open(*input.workload);
  if (opened.ok()) {
    for (std::string& warning : (*opened)->Warnings()) input.warnings.push_back(std::move(warning));
    input.data = (*opened)->Summary();
    return input;
  }
  const absl::Status data = base::AsBadInput(opened.status());
  const bool has_field = absl::StartsWith(data.message(), "spec.");
  const char* const field = job.spec.data.path.empty() ? "spec.data: " : "spec.data.path: ";
  return absl::Status(data.code(), absl::StrCat(has_field ? "" : field, data.message()));
}

}  // namespace fusionllm::cli
