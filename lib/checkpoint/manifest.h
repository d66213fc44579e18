// manifest.json: what a checkpoint is, and the proof that it is whole.
//
// Plain data and pure conversions, but for Load, which reads one file. JSON keys: format_version, job_name, spec_hash, plan_hash, step,
// sequence, micro_batch_size, codec_limit, codec_limits[].{value,gradient,codec}, data_cursor.samples_consumed, rng.seed,
// files[].{name,size,sha256}, resolved_job (the text of the job's YAML), sha256. Unknown keys are ignored, so that a newer minor release
// can be read. A file that lies in its site (site_store.h) has site, site_folder and tensors besides, and a manifest with such files is of
// version 3: earlier releases cannot read those checkpoints.
//
// The last key is the checksum of the manifest itself: of the JSON of all other keys, sorted and without white space. A cursor or a model
// that one bit has changed would train something else without a word. Version 1 had none, and is still read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::checkpoint {

inline constexpr int64_t kFormatVersion = 2;
inline constexpr int64_t kSitesFormatVersion = 3;  // some of the files lie in sites
inline constexpr int64_t kMaxManifestBytes = 16 << 20;
inline constexpr size_t kMaxFilesOfCheckpoint = 100'000;
inline constexpr size_t kMaxCodecLimits = 1'000'000;
inline constexpr char kManifestName[] = "manifest.json";

struct FileEntry {
  std::string name;  // inside the folder, without a slash
  int64_t bytes = 0;
  std::string sha256;                // 64 lower-case hex digits
  std::vector<std::string> tensors;  // their names, sorted; in the manifest only where the file, which says it itself, is not at hand
  int64_t tensor_bytes = 0;          // of all of them; not in the manifest
  // Where the file lies if it was written in a site other than the committer's: there below SiteStore's folder. Empty: beside the manifest.
  std::string site, site_folder;
};

// Whether any of the files was written in another site.
bool HasSiteFiles(const std::vector<FileEntry>& files);

// The furthest codec that messages of a value, or of its gradient, may use: what a run has found out about them (adr/0025).
struct CodecLimit {
  std::string value;  // of the forward graph, by name
  bool gradient = false;
  std::string codec;  // compression::ToString
  bool operator==(const CodecLimit&) const = default;
};

struct Manifest {
  int64_t format_version = kFormatVersion;
  std::string job_name;
  std::string spec_hash;
  std::string plan_hash;
  int64_t step = 0;              // steps done
  int64_t sequence = 0;          // counts the checkpoints of a folder in the order they were made; set by CommitCheckpoint
  int64_t first_sequence = 0;    // older ones in the folder are not of this run nor of those it goes on from: it removes none of them
  int64_t samples_consumed = 0;  // data::DataCursor
  int64_t micro_batch_size = 0;  // samples; a run that goes on keeps it where its job leaves it to the planner. 0: not recorded
  std::string codec_limit;       // of all values, after a loss that left its trend; empty: none
  std::vector<CodecLimit> codec_limits;
  // What lay in the files that the job names, by field, in words (workload::InputFingerprints); fields that were not known are not there.
  std::map<std::string, std::string> contents;
  uint64_t seed = 0;  // all random streams are counter-based, so their state is this and the step
  std::vector<FileEntry> files;
  std::string resolved_job;
};

std::string FormatManifest(const Manifest& manifest);

// Errors: InvalidArgument naming the key that is missing, of another type or out of range (a file name with a slash, a checksum that is
// none, a negative size); DataLoss when the manifest's own checksum is another; Unimplemented for a newer format version.
absl::StatusOr<Manifest> ParseManifest(absl::string_view json);

// The sequence of a manifest that ParseManifest or LoadManifest refused for its newer format version, where it says one as this release
// does: so that one knows whether something made since is to be preferred. nullopt for other errors.
std::optional<int64_t> SequenceOfNewerFormat(const absl::Status& error);

// `error` with `file` before its words; SequenceOfNewerFormat stays known.
absl::Status ManifestError(absl::string_view file, const absl::Status& error);

// Reads and parses FOLDER/manifest.json. Errors also name the file; InvalidArgument for what is no regular file.
absl::StatusOr<Manifest> LoadManifest(const std::string& folder);

}  // namespace fusionllm::checkpoint
