// fusionctl checkpoint ls|inspect|verify|export
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "cli/run/text_table.h"
#include "lib/base/exit_code.h"
#include "lib/base/output_file.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/export.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/initial_model.h"
#include "lib/models/config_json.h"
#include "lib/report/number_format.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;

constexpr char kModelFile[] = "model.safetensors";
constexpr char kModelEnding[] = ".safetensors";
constexpr const char* kOtherModelEndings[] = {".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".npz", ".h5", ".msgpack"};
constexpr int64_t kMaxConfigBytes = 1 << 20;

struct CheckpointFlags {
  std::string path, output;
};

// Of a folder of checkpoints, or of a run that has one.
absl::StatusOr<std::vector<checkpoint::CheckpointInfo>> CheckpointsIn(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(auto found, checkpoint::ListCheckpoints(path));
  if (found.empty()) return checkpoint::ListCheckpoints((std::filesystem::path(path) / "checkpoints").string());
  return found;
}

absl::StatusOr<int> List(const CheckpointFlags& flags, OutputFormat format) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(flags.path, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(flags.path, std::filesystem::exists(flags.path, ignored) ? " is not a folder" : " does not exist"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto checkpoints, base::AsBadInput(CheckpointsIn(flags.path)));
  json list = json::array();
  TextTable table({"checkpoint", ">step", ">size", "state"});
  for (const checkpoint::CheckpointInfo& info : checkpoints) {
    list.push_back({{"path", info.path},
                    {"step", info.step},
                    {"bytes", info.bytes},
                    {"latest", info.is_latest},
                    {"problem", info.problem},
                    {"elsewhere", info.other_sites}});
    std::string state = !info.problem.empty() ? info.problem : info.is_latest ? "latest" : "";
    if (!info.other_sites.empty()) absl::StrAppend(&state, state.empty() ? "" : "; ", info.other_sites);
    table.Row({info.path, absl::StrCat(info.step), report::MemoryBytes(static_cast<double>(info.bytes)), state});
  }
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", list.dump());
  } else if (checkpoints.empty()) {
    absl::PrintF("no checkpoints in %s\n", flags.path);
  } else {
    absl::PrintF("%s", table.ToString());
  }
  return kExitDone;
}

absl::StatusOr<int> Inspect(const CheckpointFlags& flags, OutputFormat format) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader, base::AsBadInput(checkpoint::CheckpointReader::Open(flags.path)));
  json document = {{"path", reader.path()}, {"tensors", json::array()}};
  if (reader.manifest().has_value()) {
    const checkpoint::Manifest& manifest = *reader.manifest();
    document["job"] = manifest.job_name;
    document["step"] = manifest.step;
    document["samples_consumed"] = manifest.samples_consumed;
    document["seed"] = manifest.seed;
    document["spec_hash"] = manifest.spec_hash;
    document["plan_hash"] = manifest.plan_hash;
    document["files"] = json::array();
    for (const checkpoint::FileEntry& file : manifest.files) document["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  TextTable table({"tensor", "type", "kind"});
  int64_t parameters = 0;
  for (const auto& [name, stored] : reader.tensors()) {
    const bool is_parameter = reader.IsParameter(stored);
    const std::string type = absl::StrCat(stored.entry->dtype_name, stored.entry->shape.ToString());
    if (is_parameter) parameters += stored.entry->shape.elements();
    document["tensors"].push_back({{"name", name}, {"type", type}, {"kind", is_parameter ? "parameter" : "state"}});
    table.Row({name, type, is_parameter ? "parameter" : "state"});
  }
  document["parameters"] = parameters;
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", document.dump());
    return kExitDone;
  }
  absl::PrintF("%s\n", reader.path());
  if (reader.manifest().has_value()) {
    absl::PrintF("job %s, step %d, %d samples consumed, %d files\n", reader.manifest()->job_name, reader.manifest()->step,
                 reader.manifest()->samples_consumed, reader.manifest()->files.size());
  }
  absl::PrintF("%s elements in parameters\n\n%s", report::WholeNumber(parameters), table.ToString());
  return kExitDone;
}

// Of a folder of checkpoints all are meant.
absl::StatusOr<std::vector<std::string>> CheckpointsMeant(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return std::vector<std::string>{path};
  FUSIONLLM_ASSIGN_OR_RETURN(const auto inside, base::AsBadInput(CheckpointsIn(path)));
  std::vector<std::string> meant;
  for (const checkpoint::CheckpointInfo& info : inside) meant.push_back(info.path);
  if (meant.empty()) meant.push_back(path);
  return meant;
}

absl::StatusOr<int> VerifyOne(const CheckpointFlags& flags, OutputFormat format) {
  const absl::Status status = checkpoint::VerifyCheckpoint(flags.path);
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(flags.path, ignored);
  // Damage is what was asked about, and no error of this command.
  if (!status.ok() && (!is_there || !absl::IsDataLoss(status))) return base::AsBadInput(status);
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", json{{"path", flags.path}, {"whole", status.ok()}, {"problem", std::string(status.message())}}.dump());
  } else if (status.ok()) {
    absl::PrintF("%s is whole\n", flags.path);
  }
  if (!status.ok()) absl::FPrintF(stderr, "fusionctl: %s\n", status.message());
  return status.ok() ? kExitDone : kExitFailed;
}

absl::StatusOr<int> Verify(const CheckpointFlags& flags, OutputFormat format) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> meant, CheckpointsMeant(flags.path));
  if (meant.size() == 1 && meant[0] == flags.path) return VerifyOne(flags, format);
  json list = json::array();
  bool all_whole = true, any_damaged = false;
  for (const std::string& path : meant) {
    const absl::Status status = checkpoint::VerifyCheckpoint(path);
    all_whole = all_whole && status.ok();
    any_damaged = any_damaged || absl::IsDataLoss(status);
    list.push_back({{"path", path}, {"whole", status.ok()}, {"problem", std::string(status.message())}});
    if (format == OutputFormat::kText && status.ok()) absl::PrintF("%s is whole\n", path);
    if (!status.ok()) absl::FPrintF(stderr, "fusionctl: %s\n", status.message());
  }
  const std::string problem = all_whole ? "" : "not all checkpoints are whole";
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", json{{"path", flags.path}, {"whole", all_whole}, {"problem", problem}, {"checkpoints", list}}.dump());
  }
  // As of one: what may not be read, or is not supported, is not known to be damaged.
  return all_whole ? kExitDone : any_damaged ? kExitFailed : kExitBadInput;
}

// The config.json that transformers wants beside the parameters: from the job of the checkpoint, or as it lies beside a model of Hugging
// Face. Empty: its family has none, or nothing says what it is.
absl::StatusOr<std::string> ConfigFor(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader, base::AsBadInput(checkpoint::CheckpointReader::Open(path)));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<job::InitialModel> model, job::ReadInitialModel(reader.path()));
  return model.has_value() ? model->family->FormatConfig(model->sizes) : "";
}

// One that lies there already must be of the same model: transformers would read the parameters by it.
absl::Status CheckConfigThere(const std::string& file, const std::string& config) {
  const absl::StatusOr<std::string> there = base::ReadSmallFile(file, kMaxConfigBytes);
  if (absl::IsNotFound(there.status())) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(base::AsBadInput(there.status()));
  const auto theirs = models::ParseConfigJson(*there), ours = models::ParseConfigJson(config);
  const bool known = theirs.ok() && theirs->has_value() && (*theirs)->problems.empty();
  if (known && (*theirs)->family == (*ours)->family && (*theirs)->sizes == (*ours)->sizes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, " is of another model: name another folder for what is exported, or remove it"));
}

// Whether OUT is a folder: everything is except NAME.safetensors.
absl::StatusOr<bool> IsFolder(const std::string& out) {
  std::error_code ignored;
  if (absl::EndsWith(out, "/") || std::filesystem::is_directory(out, ignored)) return true;
  const std::filesystem::path path = out;
  const std::string ending = path.extension().string();
  if (ending == kModelEnding) return false;
  if (std::find(std::begin(kOtherModelEndings), std::end(kOtherModelEndings), ending) != std::end(kOtherModelEndings)) {
    return absl::InvalidArgumentError(absl::StrCat("OUT ", out, ": parameters are written as ", kModelEnding, " alone: name a file ",
                                                   std::filesystem::path(out).replace_extension(kModelEnding).string(), ", or a folder"));
  }
  if (std::filesystem::exists(out, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat("OUT ", out, " is no folder: name one, or a file that ends in ", kModelEnding));
  }
  return true;
}

absl::StatusOr<int> Export(const CheckpointFlags& flags, OutputFormat format) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  FUSIONLLM_ASSIGN_OR_RETURN(const bool folder, IsFolder(flags.output));
  const fs::path out = folder ? fs::path(flags.output) / kModelFile : fs::path(flags.output);
  const std::string config_file = (out.parent_path() / "config.json").string();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string described, ConfigFor(flags.path));
  const std::string config = out.filename() == kModelFile ? described : "";  // the name by which transformers finds it
  if (!config.empty()) FUSIONLLM_RETURN_IF_ERROR(CheckConfigThere(config_file, config));
  if (folder) {
    fs::create_directories(flags.output, ignored);
    if (ignored) return base::AsBadInput(base::FileError(ignored.value(), "make the folder", flags.output));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::WrittenFile file, base::AsBadInput(checkpoint::ExportModel(flags.path, out.string())));
  const bool writes_config = !config.empty() && !fs::exists(config_file, ignored);
  if (writes_config) FUSIONLLM_RETURN_IF_ERROR(base::AsBadInput(base::ReplaceFile(config_file, config)));
  if (format == OutputFormat::kJson) {
    json document = {{"path", out.string()}, {"bytes", file.bytes}, {"sha256", file.sha256}};
    if (!config.empty()) document["config"] = config_file;
    absl::PrintF("%s\n", document.dump());
  } else {
    absl::PrintF("%s: %s, sha256 %s\n", out.string(), report::MemoryBytes(static_cast<double>(file.bytes)), file.sha256);
    if (config.empty() && out.filename() == kModelFile) {
      absl::PrintF("no config.json is written, for only that of a %s is known: who reads the file must know the model by itself\n",
                   models::FamilyList(models::FamiliesWithHuggingFaceFormat()));
    }
    if (config.empty() && !described.empty())
      absl::PrintF("no config.json is written beside it: only a folder, or a file called %s, gets one\n", kModelFile);
    if (!config.empty()) absl::PrintF("%s: %s\n", config_file, writes_config ? "for transformers" : "there already, of the same sizes");
  }
  return kExitDone;
}

}  // namespace

void AddCheckpoint(CLI::App& app, const Globals& globals, Action& action) {
  CLI::App* const command = app.add_subcommand("checkpoint", "List, look into, check and export checkpoints");
  command->require_subcommand(1);
  command->footer("Example:\n  fusionctl checkpoint ls runs/tiny/checkpoints");
  struct Verb {
    const char *name, *path_name, *description, *example;
    absl::StatusOr<int> (*run)(const CheckpointFlags&, OutputFormat);
  };
  const Verb verbs[] = {
      {"ls", "DIR", "List the checkpoints of a folder, newest first", "fusionctl checkpoint ls runs/tiny/checkpoints", List},
      {"inspect", "CHECKPOINT", "Show what a checkpoint holds", "fusionctl checkpoint inspect runs/tiny/checkpoints/latest", Inspect},
      {"verify", "CHECKPOINT", "Read everything and compare sizes and checksums",
       "fusionctl checkpoint verify runs/tiny/checkpoints/latest", Verify},
      {"export", "CHECKPOINT", "Write the parameters as one .safetensors file, in a folder as transformers opens it",
       "fusionctl checkpoint export runs/tiny/checkpoints/latest hf", Export},
  };
  for (const Verb& verb : verbs) {
    const auto flags = std::make_shared<CheckpointFlags>();
    CLI::App* const sub = command->add_subcommand(verb.name, verb.description);
    const bool list = verb.run == List;
    sub->add_option(verb.path_name, flags->path,
                    list ? "a folder of checkpoints, or of a run that keeps them in checkpoints/"
                         : "a checkpoint, a folder of checkpoints, or any .safetensors model")
        ->required();
    if (verb.run == Export)
      sub->add_option(
             "OUT", flags->output,
             "a folder, made if need be: model.safetensors in it, for a GPT-2 with its config.json; or a file that ends in .safetensors")
          ->required();
    sub->footer(absl::StrCat("Example:\n  ", verb.example));
    sub->callback([run = verb.run, flags, &globals, &action] {
      action = [run, flags, &globals] {
        const absl::StatusOr<int> code = run(*flags, globals.format);
        return code.ok() ? *code : ReportError(code.status());
      };
    });
  }
}

}  // namespace fusionllm::cli
