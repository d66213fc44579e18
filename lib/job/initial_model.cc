#include "lib/job/initial_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/base/json_text.h"
#include "lib/base/object_uri.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/model_config.h"
#include "lib/job/parse.h"
#include "lib/models/config_json.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::job {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxManifestBytes = 16 << 20;

absl::Status Named(const std::string& file, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(status.message())));
}

absl::StatusOr<std::optional<InitialModel>> FromConfigJson(const std::string& file) {
  const absl::StatusOr<std::string> text = base::ReadSmallFile(file, kMaxConfigBytes);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  return InitialModelFromConfig(*text, file);
}

// A manifest that is damaged is reported by who opens the checkpoint.
std::optional<InitialModel> FromManifest(const std::string& file) {
  const absl::StatusOr<std::string> text = base::ReadSmallFile(file, kMaxManifestBytes);
  return text.ok() ? InitialModelFromManifest(*text, file) : std::nullopt;
}

// Whether it describes a model of the family. Errors: a config.json of another one; of a checkpoint of ours the parameters tell better.
absl::StatusOr<bool> IsOf(const models::Family& family, const InitialModel& start) {
  if (start.family == &family) return true;
  if (!start.is_config_json) return false;
  return absl::InvalidArgumentError(absl::StrCat(start.file, ": it is of family ", start.family->name(), ", not ", family.name()));
}

// Whether all tensors that differ with a size begin fresh, or stay unread.
bool IsSkipped(const Init& init, const models::HuggingFaceFormat& form, const models::StoredSize& size, int64_t ours, int64_t theirs,
               bool tied) {
  const auto skips = [&](absl::string_view tensor) { return MatchesAny(init.skip, tensor); };
  if (size.layers != nullptr) {
    for (int64_t layer = std::min(ours, theirs); layer < std::max(ours, theirs); ++layer) {
      const std::string tensor = absl::StrCat(size.layers, layer, form.layer_tensor);
      if (!skips(tensor) && (ours > theirs || !MatchesAny(init.ignore, tensor))) return false;
    }
    return true;
  }
  if (size.modules.empty()) return false;
  const auto module_begins = [&](const char* module) { return skips(absl::StrCat(module, ".weight")); };
  if (!std::all_of(size.modules.begin(), size.modules.end(), module_begins)) return false;
  return !size.shapes_head || tied || skips(form.tied_head.head);
}

// What begins fresh where a size differs for good: the way besides taking the file's.
std::string SkipRemedy(const models::HuggingFaceFormat& form, const models::StoredSize& size, bool tied) {
  std::vector<std::string> patterns;
  if (size.layers != nullptr) patterns.push_back(absl::StrCat("'", size.layers, "N.*'"));
  for (const char* module : size.modules) patterns.push_back(absl::StrCat("'", module, ".*'"));
  if (size.shapes_head && !tied) patterns.push_back(absl::StrCat("'", absl::StripSuffix(form.tied_head.head, "weight"), "*'"));
  return patterns.empty() ? "" : absl::StrCat(", or begin fresh there by spec.model.init.skip: [", absl::StrJoin(patterns, ", "), "]");
}

// `start` is of the job's family.
void Contradict(const Spec& spec, const std::optional<models::ModelSizes>& preset, const InitialModel& start, absl::string_view remedy,
                const Report& report) {
  const models::HuggingFaceFormat& form = *start.family->hugging_face_format();
  const models::TiedHead& head = form.tied_head;
  const models::ModelSettings &config = spec.model.config, &theirs = start.sizes.settings;
  const Init& init = spec.model.init;
  const std::optional<bool>& tied = config.*head.value;
  const bool starts_tied = (theirs.*head.value).value_or(false), is_tied = tied.value_or(starts_tied);
  for (const models::StoredSize& size : form.sizes) {
    const std::optional<int64_t>& given = config.*size.value;
    const std::optional<int64_t> of_preset = preset && size.of_preset ? preset->settings.*size.value : std::nullopt;
    const std::optional<int64_t> ours = given ? given : of_preset;
    const int64_t stored = (theirs.*size.value).value_or(0);
    if (!ours || *ours == stored || IsSkipped(init, form, size, *ours, stored, is_tied)) continue;
    const char* const key = start.is_config_json ? size.key : size.field;
    if (given) {
      report({absl::StrCat("spec.model.config.", size.field)},
             absl::StrCat("is ", *given, ", and ", key, " is ", stored, " in ", start.file, remedy, SkipRemedy(form, size, is_tied)));
    } else {
      report({"spec.model.preset"}, absl::StrCat("has ", size.field, " ", *of_preset, ", and ", key, " is ", stored, " in ", start.file,
                                                 ", which spec.model.init.from starts from; leave it out to take that"));
    }
  }
  const bool head_unread = MatchesAny(init.skip, head.head) || (tied.value_or(false) && MatchesAny(init.ignore, head.head));
  if (tied && *tied != starts_tied && !head_unread) {
    report({absl::StrCat("spec.model.config.", head.field)},
           absl::StrCat("is ", *tied ? "true" : "false", ", and ", start.is_config_json ? head.key : head.field, " is ",
                        *tied ? "false" : "true", " in ", start.file, remedy));
  }
}

// Visitor over the fields of one value, in the order of their table.
class FieldAddresses {
 public:
  static constexpr bool kFillsIn = false;
  template <class T>
  void Field(absl::string_view, T& value, const Rule&, absl::string_view) {
    addresses_.push_back(&value);
  }
  const std::vector<const void*>& addresses() const { return addresses_; }

 private:
  std::vector<const void*> addresses_;
};

// Visitor that sets fields that are absent to those of another value of the same type.
class TakeAbsent {
 public:
  static constexpr bool kFillsIn = false;
  explicit TakeAbsent(const FieldAddresses& from) : from_(from.addresses()) {}
  template <class T>
  void Field(absl::string_view, T& value, const Rule&, absl::string_view) {
    const T& other = *static_cast<const T*>(from_[next_++]);
    if (value == T()) value = other;
  }

 private:
  const std::vector<const void*>& from_;
  size_t next_ = 0;
};

}  // namespace

bool MatchesAny(const std::vector<std::string>& patterns, absl::string_view tensor) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return scheduler::MatchesGlob(pattern, tensor); });
}

absl::StatusOr<std::optional<InitialModel>> InitialModelFromConfig(const std::string& text, const std::string& file) {
  const absl::StatusOr<std::optional<models::ConfigJson>> parsed = models::ParseConfigJson(text);
  if (!parsed.ok()) return Named(file, parsed.status());
  if (!parsed->has_value()) return std::nullopt;
  const models::ConfigJson* const config = &**parsed;
  if (!config->problems.empty()) return Named(file, absl::InvalidArgumentError(absl::StrJoin(config->problems, "; ")));
  InitialModel model{.file = file, .is_config_json = true, .family = config->family, .sizes = config->sizes};
  for (const std::string& warning : config->warnings) model.warnings.push_back(absl::StrCat(file, ": ", warning));
  return model;
}

std::optional<InitialModel> InitialModelFromManifest(const std::string& text, const std::string& file) {
  const nlohmann::json document = base::ParseJson(text);
  if (!document.is_object() || !document.contains("resolved_job") || !document.at("resolved_job").is_string()) return std::nullopt;
  const absl::StatusOr<FusionJob> job = ParseFusionJob(document.at("resolved_job").get<std::string>(), file);
  if (!job.ok()) return std::nullopt;
  const absl::StatusOr<ResolvedModel> model = ResolveModel(job->spec);
  if (!model.ok() || model->family == nullptr || model->family->hugging_face_format() == nullptr) return std::nullopt;
  return InitialModel{.file = file, .family = model->family, .sizes = model->sizes};
}

absl::StatusOr<std::optional<InitialModel>> ReadInitialModel(const std::string& path) {
  std::error_code error;
  const fs::path start = path;
  const bool folder = fs::is_directory(start, error);
  if (!folder && !fs::is_regular_file(start, error)) return std::nullopt;  // reported by who opens it
  for (const fs::path& manifest : {start / "manifest.json", start / "latest" / "manifest.json"}) {
    if (folder && fs::is_regular_file(manifest, error)) return FromManifest(manifest.string());
  }
  const fs::path config = (folder ? start : start.parent_path()) / "config.json";
  if (!fs::is_regular_file(config, error)) return std::nullopt;
  return FromConfigJson(config.string());
}

void ApplyInitialModel(const std::string& folder, Spec& spec, const Report& report, const RemoteStart& remote) {
  Model& model = spec.model;
  const models::Family* const family = FamilyOf(model);
  if (family == nullptr || family->hugging_face_format() == nullptr || !model.init.from) return;
  const bool uri = base::IsUri(*model.init.from);
  if (uri && (remote == nullptr || !base::ParseObjectUri(*model.init.from).ok())) return;
  const absl::StatusOr<std::optional<InitialModel>> start =
      uri ? remote(*model.init.from) : ReadInitialModel((fs::path(folder) / *model.init.from).lexically_normal().string());
  if (!start.ok()) report({"spec.model.init.from"}, start.status().message());
  if (!start.ok() || !start->has_value()) return;
  const absl::StatusOr<bool> of_family = IsOf(*family, **start);
  if (!of_family.ok()) report({"spec.model.init.from"}, of_family.status().message());
  if (!of_family.ok() || !*of_family) return;
  std::optional<models::ModelSizes> preset;
  if (model.preset) {
    Spec bare = spec;
    bare.model.config = {};
    const absl::StatusOr<ResolvedModel> resolved = ResolveModel(bare);
    if (resolved.ok()) preset = resolved->sizes;
    if (!preset) return;  // no preset of that name, which is reported; sizes would follow from it
  }
  Contradict(spec, preset, **start, "; leave it out to take that", report);
  FieldAddresses theirs;
  models::ModelSettings sizes = (*start)->sizes.settings;
  Visit(theirs, sizes);
  TakeAbsent take(theirs);
  Visit(take, model.config);
}

absl::Status CheckInitialModel(const FusionJob& job, const std::string& path) {
  const absl::StatusOr<ResolvedModel> resolved = ResolveModel(job.spec);
  if (!resolved.ok() || resolved->family == nullptr || resolved->family->hugging_face_format() == nullptr) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<InitialModel> start, ReadInitialModel(path));
  if (!start) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const bool of_family, IsOf(*resolved->family, *start));
  if (!of_family) return absl::OkStatus();
  Spec spec = job.spec;
  spec.model.config = resolved->sizes.settings;
  std::vector<std::string> findings;
  Contradict(spec, std::nullopt, *start, ", beside the parameters",
             [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
               findings.push_back(absl::StrCat(*paths.begin(), ": ", message));
             });
  return findings.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(findings, "\n"));
}

}  // namespace fusionllm::job
