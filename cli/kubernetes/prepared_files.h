// The Kubernetes objects that bring files to the Pods of a job: ConfigMaps that hold them where they are small, else a claim, and a Pod by
// which it is filled. Pure, but that the files are read.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/kubernetes/named_files.h"

namespace fusionllm::cli {

// Bytes of files that ConfigMaps hold at most, of one job, all together: an API server takes 1 MiB of one ConfigMap, and each of the job's
// Pods gets them all.
inline constexpr int64_t kMaxConfigMapsBytes = (int64_t{1} << 20) - (int64_t{64} << 10);
// Bytes of a ConfigMap's contents as JSON. `kubectl apply` puts the object that it was given into an annotation as well, and annotations
// may have 256 KiB; the rest is for what they hold besides.
inline constexpr int64_t kMaxAppliedBytes = int64_t{240} << 10;
// Each has an entry in the FusionJob, which is applied in the same way.
inline constexpr size_t kMaxConfigMapsFiles = 1000;

struct ClaimOptions {
  std::string access_mode = "ReadWriteOnce";
  std::string storage_class;             // empty: the cluster's default
  std::string image = "busybox:stable";  // of the Pod that fills it: one with sleep, mkdir and tar
};

struct PreparedFiles {
  std::vector<nlohmann::ordered_json> objects;
  nlohmann::ordered_json data_volume, graph_volume;  // volume sources of a Pod; null: nothing lies there
  std::string filling_pod;                           // among the objects, with the claim at kFillFolder; empty: ConfigMaps hold the files
};
inline constexpr char kFillFolder[] = "/data";

// For the job of this name, in `name_space` (empty: none is said). Names end in a digest of what the files hold and of their locations, so
// that other contents are other objects; the same input gives the same objects. No path at all: none.
// Blocks on the disk: all files are read once. Errors: InvalidArgument that begins with the field and names the path, for a file that
// cannot be read.
absl::StatusOr<PreparedFiles> PrepareFiles(const std::vector<NamedPath>& paths, const std::string& job, const std::string& name_space,
                                           const ClaimOptions& options);

}  // namespace fusionllm::cli
