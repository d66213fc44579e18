// Names of the folders and files of checkpoints. Pure functions.
//
//   ROOT/step-000050/                    a whole checkpoint
//   ROOT/step-000050/manifest.json
//   ROOT/step-000050/model.safetensors   or model-00001-of-00003.safetensors ... and model.safetensors.index.json; optimizer and
//                                        residuals likewise, without an index
//   ROOT/latest                          a symbolic link to the newest, relative, replaced atomically
//   ROOT/step-000050.earlier-1/          an earlier run's, set aside for one of this run: nothing lists or removes it
//   ROOT/.step-000050.partial/           being written, or left by a crash
//   ROOT/.shards-id                      in whose name sites keep shards of ROOT's checkpoints: 16 hexadecimal digits; then by which ROOT
//                                        is known from a copy: device and inode, path
//
// In a site that keeps shards itself (site_store.h), below a folder of its own:
//   shards/0123456789abcdef/paris-0/step-000050.fedcba9876543210/model-00002-of-00003.safetensors
//          of ROOT          device  of one save, by a number that no other has
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::checkpoint {

inline constexpr char kLatestName[] = "latest";
inline constexpr int64_t kMaxLatestBytes = 256;  // of what it names
inline constexpr char kIndexName[] = "model.safetensors.index.json";
inline constexpr int kMaxStages = 99'999;

enum class ShardKind : uint8_t { kModel, kOptimizer, kResiduals };
inline constexpr ShardKind kShardKinds[] = {ShardKind::kModel, ShardKind::kOptimizer, ShardKind::kResiduals};
absl::string_view Name(ShardKind kind);  // "model", "optimizer", "residuals"

std::string StepFolderName(int64_t step);                            // "step-000050"
std::optional<int64_t> ParseStepFolderName(absl::string_view name);  // nullopt: another name
std::string StagingFolder(absl::string_view root, int64_t step);     // ROOT/.step-000050.partial
bool IsStagingName(absl::string_view name);                          // ".step-000050.partial", ".step-000050.old.partial"
std::string ShardFileName(ShardKind kind, int stage, int stages);    // stage from 0; one stage: "model.safetensors"
std::optional<ShardKind> ShardKindOf(absl::string_view file_name);   // nullopt: no shard
bool IsNumberedShard(absl::string_view file_name);                   // "model-00001-of-00003.safetensors"
bool IsShardFileOf(absl::string_view file_name, int stage, int stages);

inline constexpr char kShardsIdName[] = ".shards-id";
inline constexpr char kSiteShardsName[] = "shards";
bool IsShardsId(absl::string_view text);

// A folder of one save in a site: "0123456789abcdef/paris-0/step-000050.fedcba9876543210".
struct SiteFolder {
  std::string id, device;
  int64_t step = 0;
  uint64_t number = 0;
};
std::string ToString(const SiteFolder& folder);
std::optional<SiteFolder> ParseSiteFolder(absl::string_view text);  // nullopt: another form; such a text leads out of no folder

}  // namespace fusionllm::checkpoint
