#include "lib/checkpoint/layout.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::checkpoint {

absl::string_view Name(ShardKind kind) {
  return kind == ShardKind::kModel ? "model" : kind == ShardKind::kOptimizer ? "optimizer" : "residuals";
}

std::string StepFolderName(int64_t step) { return absl::StrFormat("step-%06d", step); }

std::optional<int64_t> ParseStepFolderName(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, "step-") || name.size() < 6 || name.size() > 18) return std::nullopt;
  if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit) || !absl::SimpleAtoi(name, &step)) return std::nullopt;
  return step;
}

std::string StagingFolder(absl::string_view root, int64_t step) { return absl::StrCat(root, "/.", StepFolderName(step), ".partial"); }

bool IsStagingName(absl::string_view name) { return absl::StartsWith(name, ".step-") && absl::EndsWith(name, ".partial"); }

std::string ShardFileName(ShardKind kind, int stage, int stages) {
  if (stages == 1) return absl::StrCat(Name(kind), ".safetensors");
  return absl::StrFormat("%s-%05d-of-%05d.safetensors", Name(kind), stage + 1, stages);
}

std::optional<ShardKind> ShardKindOf(absl::string_view file_name) {
  if (!absl::EndsWith(file_name, ".safetensors")) return std::nullopt;
  for (const ShardKind kind : kShardKinds) {
    absl::string_view rest = file_name;
    if (absl::ConsumePrefix(&rest, Name(kind)) && (rest == ".safetensors" || absl::StartsWith(rest, "-"))) return kind;
  }
  return std::nullopt;
}

bool IsNumberedShard(absl::string_view file_name) {
  if (!ShardKindOf(file_name)) return false;
  absl::string_view rest = absl::StripSuffix(file_name, ".safetensors");
  rest.remove_prefix(std::min(rest.find('-'), rest.size()));
  const auto is_number = [](absl::string_view text) { return std::all_of(text.begin(), text.end(), absl::ascii_isdigit); };
  return rest.size() == 15 && is_number(rest.substr(1, 5)) && rest.substr(6, 4) == "-of-" && is_number(rest.substr(10));
}

bool IsShardsId(absl::string_view text) {
  return text.size() == 16 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string ToString(const SiteFolder& folder) {
  return absl::StrFormat("%s/%s/%s.%016x", folder.id, folder.device, StepFolderName(folder.step), folder.number);
}

std::optional<SiteFolder> ParseSiteFolder(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() != 3 || !IsShardsId(parts[0])) return std::nullopt;
  const std::string& device = parts[1];
  const bool plain =
      std::all_of(device.begin(), device.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
  if (device.empty() || device.size() > 255 || device[0] == '.' || !plain) return std::nullopt;
  const size_t dot = std::min(parts[2].find('.'), parts[2].size());
  const std::optional<int64_t> step = ParseStepFolderName(absl::string_view(parts[2]).substr(0, dot));
  const absl::string_view digits = absl::ClippedSubstr(parts[2], dot + 1);
  SiteFolder folder{.id = parts[0], .device = device};
  if (!step || !IsShardsId(digits) || !absl::SimpleHexAtoi(digits, &folder.number)) return std::nullopt;
  folder.step = *step;
  return folder;
}

bool IsShardFileOf(absl::string_view file_name, int stage, int stages) {
  return std::any_of(std::begin(kShardKinds), std::end(kShardKinds),
                     [&](ShardKind kind) { return file_name == ShardFileName(kind, stage, stages); });
}

}  // namespace fusionllm::checkpoint
