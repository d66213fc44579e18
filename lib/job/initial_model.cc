#include "lib/job/initial_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/base/object_uri.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/gpt2_config_json.h"
#include "lib/job/parse.h"
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

// One size of both, by the name that each has for it.
struct StoredSize {
  const char *field, *key;
  std::optional<int64_t> given, of_preset;
  int64_t theirs;
};

std::vector<StoredSize> SizesOf(const ModelSettings& config, const std::optional<GptConfig>& preset, const InitialModel& start) {
  const auto of_preset = [&](int64_t GptConfig::*size) { return preset ? std::optional<int64_t>((*preset).*size) : std::nullopt; };
  const GptConfig& theirs = start.sizes;
  const bool json = start.is_config_json;
  return {{"nLayer", json ? "n_layer" : "nLayer", config.n_layer, of_preset(&GptConfig::n_layer), theirs.n_layer},
          {"nHead", json ? "n_head" : "nHead", config.n_head, of_preset(&GptConfig::n_head), theirs.n_head},
          {"nEmbd", json ? "n_embd" : "nEmbd", config.n_embd, of_preset(&GptConfig::n_embd), theirs.n_embd},
          {"vocabSize", json ? "vocab_size" : "vocabSize", config.vocab_size, of_preset(&GptConfig::vocab_size), theirs.vocab_size},
          {"blockSize", json ? "n_positions" : "blockSize", config.block_size, std::nullopt, theirs.block_size}};
}

// Whether all tensors that differ with a size begin fresh, or stay unread.
bool IsSkipped(const Init& init, const StoredSize& size, int64_t ours, bool tied) {
  const auto skips = [&](absl::string_view tensor) { return MatchesAny(init.skip, tensor); };
  const absl::string_view field = size.field;
  if (field == "vocabSize") return skips("transformer.wte.weight") && (tied || skips("lm_head.weight"));
  if (field == "blockSize") return skips("transformer.wpe.weight");
  if (field != "nLayer") return false;
  for (int64_t layer = std::min(ours, size.theirs); layer < std::max(ours, size.theirs); ++layer) {
    const std::string tensor = absl::StrCat("transformer.h.", layer, ".ln_1.weight");
    if (!skips(tensor) && (ours > size.theirs || !MatchesAny(init.ignore, tensor))) return false;
  }
  return true;
}

// What begins fresh where a size differs for good: the way besides taking the file's.
std::string SkipRemedy(absl::string_view field, bool tied) {
  const char* const patterns = field == "vocabSize"   ? (tied ? "'transformer.wte.*'" : "'transformer.wte.*', 'lm_head.*'")
                               : field == "blockSize" ? "'transformer.wpe.*'"
                               : field == "nLayer"    ? "'transformer.h.N.*'"
                                                      : nullptr;
  return patterns == nullptr ? "" : absl::StrCat(", or begin fresh there by spec.model.init.skip: [", patterns, "]");
}

void Contradict(const Spec& spec, const std::optional<GptConfig>& preset, const InitialModel& start, absl::string_view remedy,
                const Report& report) {
  const Init& init = spec.model.init;
  const std::optional<bool>& tied = spec.model.config.tie_weights;
  const bool is_tied = tied.value_or(start.sizes.tie_weights);
  for (const StoredSize& size : SizesOf(spec.model.config, preset, start)) {
    const std::optional<int64_t> ours = size.given ? size.given : size.of_preset;
    if (!ours || IsSkipped(init, size, *ours, is_tied)) continue;
    if (size.given && *size.given != size.theirs) {
      report({absl::StrCat("spec.model.config.", size.field)}, absl::StrCat("is ", *size.given, ", and ", size.key, " is ", size.theirs,
                                                                            " in ", start.file, remedy, SkipRemedy(size.field, is_tied)));
    } else if (!size.given && size.of_preset && *size.of_preset != size.theirs) {
      report({"spec.model.preset"}, absl::StrCat("has ", size.field, " ", *size.of_preset, ", and ", size.key, " is ", size.theirs, " in ",
                                                 start.file, ", which spec.model.init.from starts from; leave it out to take that"));
    }
  }
  const bool head_unread = MatchesAny(init.skip, "lm_head.weight") || (tied.value_or(false) && MatchesAny(init.ignore, "lm_head.weight"));
  if (tied && *tied != start.sizes.tie_weights && !head_unread) {
    const char* const key = start.is_config_json ? "tie_word_embeddings" : "tieWeights";
    report({"spec.model.config.tieWeights"},
           absl::StrCat("is ", *tied ? "true" : "false", ", and ", key, " is ", *tied ? "false" : "true", " in ", start.file, remedy));
  }
}

}  // namespace

bool MatchesAny(const std::vector<std::string>& patterns, absl::string_view tensor) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) { return scheduler::MatchesGlob(pattern, tensor); });
}

absl::StatusOr<std::optional<InitialModel>> InitialModelFromConfig(const std::string& text, const std::string& file) {
  const absl::StatusOr<std::optional<Gpt2ConfigJson>> parsed = ParseGpt2ConfigJson(text);
  if (!parsed.ok()) return Named(file, parsed.status());
  if (!parsed->has_value()) return std::nullopt;
  const Gpt2ConfigJson* const config = &**parsed;
  if (!config->problems.empty()) return Named(file, absl::InvalidArgumentError(absl::StrJoin(config->problems, "; ")));
  InitialModel model{.file = file, .is_config_json = true, .sizes = config->sizes};
  for (const std::string& warning : config->warnings) model.warnings.push_back(absl::StrCat(file, ": ", warning));
  return model;
}

std::optional<InitialModel> InitialModelFromManifest(const std::string& text, const std::string& file) {
  const nlohmann::json document = base::ParseJson(text);
  if (!document.is_object() || !document.contains("resolved_job") || !document.at("resolved_job").is_string()) return std::nullopt;
  const absl::StatusOr<FusionJob> job = ParseFusionJob(document.at("resolved_job").get<std::string>(), file);
  if (!job.ok()) return std::nullopt;
  const absl::StatusOr<ResolvedModel> model = ResolveModel(job->spec);
  if (!model.ok() || !std::holds_alternative<GptConfig>(*model)) return std::nullopt;
  return InitialModel{.file = file, .sizes = std::get<GptConfig>(*model)};
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
  if (model.family != Family::kGpt2 || !model.init.from) return;
  const bool uri = base::IsUri(*model.init.from);
  if (uri && (remote == nullptr || !base::ParseObjectUri(*model.init.from).ok())) return;
  const absl::StatusOr<std::optional<InitialModel>> start =
      uri ? remote(*model.init.from) : ReadInitialModel((fs::path(folder) / *model.init.from).lexically_normal().string());
  if (!start.ok()) report({"spec.model.init.from"}, start.status().message());
  if (!start.ok() || !start->has_value()) return;
  std::optional<GptConfig> preset;
  if (model.preset) {
    Spec bare = spec;
    bare.model.config = {};
    const absl::StatusOr<ResolvedModel> resolved = ResolveModel(bare);
    if (resolved.ok()) preset = std::get<GptConfig>(*resolved);
    if (!preset) return;  // no preset of that name, which is reported; sizes would follow from it
  }
  Contradict(spec, preset, **start, "; leave it out to take that", report);
  ModelSettings& config = model.config;
  const GptConfig& sizes = (*start)->sizes;
  const auto take = [](auto& field, auto value) {
    if (!field) field = value;
  };
  take(config.n_layer, sizes.n_layer);
  take(config.n_head, sizes.n_head);
  take(config.n_embd, sizes.n_embd);
  take(config.vocab_size, sizes.vocab_size);
  take(config.block_size, sizes.block_size);
  take(config.tie_weights, sizes.tie_weights);
}

absl::Status CheckInitialModel(const FusionJob& job, const std::string& path) {
  const absl::StatusOr<ResolvedModel> resolved = ResolveModel(job.spec);
  if (!resolved.ok() || !std::holds_alternative<GptConfig>(*resolved)) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<InitialModel> start, ReadInitialModel(path));
  if (!start) return absl::OkStatus();
  const auto& sizes = std::get<GptConfig>(*resolved);
  Spec spec = job.spec;
  spec.model.config = {.n_layer = sizes.n_layer,
                       .n_head = sizes.n_head,
                       .n_embd = sizes.n_embd,
                       .vocab_size = sizes.vocab_size,
                       .block_size = sizes.block_size,
                       .tie_weights = sizes.tie_weights};
  std::vector<std::string> findings;
  Contradict(spec, std::nullopt, *start, ", beside the parameters",
             [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
               findings.push_back(absl::StrCat(*paths.begin(), ": ", message));
             });
  return findings.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(findings, "\n"));
}

}  // namespace fusionllm::job
