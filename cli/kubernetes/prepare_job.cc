#include "cli/kubernetes/prepare_job.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/kubernetes/named_files.h"
#include "cli/run/resume_command.h"
#include "lib/base/exit_code.h"
#include "lib/base/json_text.h"
#include "lib/base/object_uri.h"
#include "lib/base/printable_text.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/document.h"
#include "lib/job/field_locations.h"
#include "lib/job/parse.h"
#include "lib/job/server_fields.h"
#include "lib/kubeapi/crd.h"
#include "lib/kubeapi/objects.h"

namespace fusionllm::cli {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

// The job as it is written.
struct Document {
  job::FusionJob job;
  json object;
  job::FieldLocations places;
};

// In the order in which it is written. Documents that were read nest no deeper than job::kMaxDocumentDepth.
json ToObject(const job::Node& node) {
  switch (node.kind) {
    case job::Node::Kind::kNull:
      return nullptr;
    case job::Node::Kind::kScalar:
      return base::ParseJson(job::ToJson(node));
    case job::Node::Kind::kList: {
      json list = json::array();
      for (const job::Node& item : node.items) list.push_back(ToObject(item));
      return list;
    }
    case job::Node::Kind::kMap:
      break;
  }
  json map = json::object();
  for (size_t i = 0; i < node.keys.size(); ++i) map[node.keys[i]] = ToObject(node.items[i]);
  return map;
}

absl::StatusOr<Document> ReadDocument(const PrepareOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::AsBadInput(base::ReadSmallFile(options.job, job::kMaxDocumentBytes)));
  Document document;
  FUSIONLLM_ASSIGN_OR_RETURN(document.job, job::ParseFusionJob(text, options.job, options.overrides));
  job::Problems problems(options.job);
  job::Node root;
  if (!job::LoadDocument(text, root, problems)) return problems.ToStatus();
  job::ApplyOverrides(options.overrides, root, problems);
  FUSIONLLM_RETURN_IF_ERROR(problems.ToStatus());
  job::DropServerFields(root);
  document.object = ToObject(root);
  document.places = job::FieldLocations(options.job, std::move(root), options.overrides);
  return document;
}

absl::StatusOr<std::string> NamespaceOf(const Document& document, const std::string& asked) {
  const std::string& own = document.job.metadata.name_space;
  if (!asked.empty() && !own.empty() && asked != own) {
    return document.places.Located(
        absl::InvalidArgumentError(absl::StrCat("metadata.namespace: is ", own, ", and --namespace says ", asked)));
  }
  return asked.empty() ? own : asked;
}

// Nothing in a cluster reads what a start says of its model before the job is planned.
absl::Status TakeSizesOfStart(const PrepareOptions& options, Document& document) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob loaded, job::LoadFusionJob(options.job, options.overrides));
  if (loaded.spec.model.config == document.job.spec.model.config) return absl::OkStatus();
  job::Node root;
  job::Problems problems("");
  if (!job::LoadDocument(job::ToYaml(loaded), root, problems)) return problems.ToStatus();
  document.object["spec"]["model"]["config"] = ToObject(root)["spec"]["model"]["config"];
  return absl::OkStatus();
}

void SetLocations(const std::vector<NamedPath>& paths, json& spec) {
  for (const NamedPath& named : paths) {
    if (named.field == kGraphField) {
      spec["model"]["graph"]["file"] = named.location;
    } else if (named.field == kStartField) {
      spec["model"]["init"]["from"] = named.location;
    } else {
      json& data = spec["data"];
      json& written = named.field == kDataField ? data["path"] : data["validation"]["path"];
      (written.is_array() ? written[named.index] : written) = named.location;
    }
  }
}

absl::StatusOr<std::vector<std::string>> FillingCommands(const std::vector<NamedPath>& paths, const std::string& pod,
                                                         const std::string& kubectl) {
  std::vector<std::string> commands = {absl::StrCat(kubectl, " wait --for=condition=Ready pod/", pod, " --timeout=5m")};
  for (const NamedPath& named : paths) {
    const std::string target = absl::StrCat(kFillFolder, "/", named.location);
    if (absl::StrContains(named.path, ":") || absl::StrContains(target, ":") || base::PrintableText(named.path) != named.path) {
      return absl::InvalidArgumentError(absl::StrCat(
          named.field, ": ", base::PrintableText(named.path),
          " has to be copied into a claim by `kubectl cp`, which takes no path with ':' or control characters: move or rename it"));
    }
    const std::string folder = fs::path(target).parent_path().string();
    if (folder != kFillFolder) commands.push_back(absl::StrCat(kubectl, " exec ", pod, " -- mkdir -p ", ShellWord(folder)));
    commands.push_back(absl::StrCat(kubectl, " cp ", ShellWord(named.path), " ", ShellWord(absl::StrCat(pod, ":", target))));
  }
  commands.push_back(absl::StrCat(kubectl, " delete pod ", pod));
  return commands;
}

std::vector<std::string> NotesOn(const job::Spec& spec) {
  std::vector<std::string> notes;
  if (spec.checkpoint.has_value() && spec.checkpoint->volume.json.empty() && !base::IsUri(spec.checkpoint->path) &&
      spec.broker.volume.json.empty()) {
    notes.push_back(
        "spec.checkpoint has no volume: in a cluster its checkpoints lie in the broker's Pod and go with it; name a claim in "
        "spec.checkpoint.volume, or an s3:// path, to keep them");
  }
  return notes;
}

}  // namespace

absl::StatusOr<PreparedJob> PrepareJob(const PrepareOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(Document document, ReadDocument(options));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string name_space, NamespaceOf(document, options.name_space));
  const std::string& name = document.job.metadata.name;
  std::error_code error;
  const fs::path folder = fs::absolute(options.job, error).lexically_normal().parent_path();
  if (error) return absl::InvalidArgumentError(absl::StrCat(options.job, ": has no absolute path: ", error.message()));
  // Before anything that the job names is opened: a link may lead anywhere.
  const absl::StatusOr<std::vector<NamedPath>> paths = FindNamedFiles(document.job.spec, folder.string());
  if (!paths.ok()) return document.places.Located(paths.status());
  const auto is_start = [](const NamedPath& named) { return named.field == kStartField; };
  if (std::any_of(paths->begin(), paths->end(), is_start)) FUSIONLLM_RETURN_IF_ERROR(TakeSizesOfStart(options, document));
  absl::StatusOr<PreparedFiles> files = PrepareFiles(*paths, name, name_space, options.claim);
  if (!files.ok()) return document.places.Located(files.status());
  PreparedJob prepared{.notes = NotesOn(document.job.spec)};
  json& spec = document.object["spec"];
  SetLocations(*paths, spec);
  if (!files->data_volume.is_null()) spec["data"]["volume"] = std::move(files->data_volume);
  if (!files->graph_volume.is_null()) spec["model"]["graph"]["volume"] = std::move(files->graph_volume);
  if (!name_space.empty()) document.object["metadata"]["namespace"] = name_space;
  if (!files->filling_pod.empty()) {
    const std::string kubectl = name_space.empty() ? "kubectl" : absl::StrCat("kubectl -n ", name_space);
    absl::StatusOr<std::vector<std::string>> commands = FillingCommands(*paths, files->filling_pod, kubectl);
    if (!commands.ok()) return document.places.Located(commands.status());
    prepared.commands = *std::move(commands);
    if (!document.job.spec.suspend && !options.without_job) {
      spec["suspend"] = true;
      prepared.commands.push_back(
          absl::StrCat(kubectl, " patch fusionjob ", name, R"( --type=merge --patch '{"spec": {"suspend": false}}')"));
    }
  }
  // What an operator would read.
  FUSIONLLM_RETURN_IF_ERROR(kubeapi::FusionJobFromObject(nlohmann::json(document.object)).status());
  prepared.documents = std::move(files->objects);
  if (!options.without_job) prepared.documents.push_back(std::move(document.object));
  return prepared;
}

std::string ToYamlStream(const PreparedJob& prepared) {
  std::string stream;
  if (!prepared.commands.empty()) {
    absl::StrAppend(&stream, "# Once this is applied, fill the claim:\n");
    for (const std::string& command : prepared.commands) absl::StrAppend(&stream, "#   ", command, "\n");
  }
  for (const json& document : prepared.documents) absl::StrAppend(&stream, "---\n", kubeapi::ToYaml(document));
  return stream;
}

}  // namespace fusionllm::cli
