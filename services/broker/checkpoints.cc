#include "services/broker/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/archive/fetch_latest.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/hashed_file.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/parse.h"

namespace fusionllm::services {
namespace {

std::string HashOf(absl::string_view text) { return absl::StrFormat("%016x", base::StableHash(text)); }

}  // namespace

absl::Status CleanUp(const std::string& directory, bool executors_are_running) {
  if (executors_are_running) return absl::OkStatus();
  return checkpoint::CleanStaging(directory).status();
}

void AbandonCheckpoint(const std::string& directory, int64_t step) { (void)checkpoint::AbandonCheckpoint(directory, step); }

absl::StatusOr<CheckpointFound> FindCheckpoint(const job::FusionJob& job, const std::string& directory, const std::string& base_directory,
                                               const std::vector<archive::MirrorTarget*>& places) {
  const std::string& resume = job.spec.checkpoint->resume;
  if (resume == "never") return CheckpointFound{};
  if (resume != "auto") {
    const std::filesystem::path path = resume;
    const std::string absolute = path.is_absolute() ? resume : (std::filesystem::path(base_directory) / path).string();
    if (const absl::Status whole = checkpoint::VerifyToRestore(absolute); !whole.ok()) {
      return absl::Status(whole.code(), absl::StrCat("spec.checkpoint.resume: ", whole.message()));
    }
    return workload::DescribeCheckpoint(job, base_directory, absolute);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const archive::LatestCheckpoint newest, archive::FetchLatest(directory, places));
  CheckpointFound found;
  if (newest.path.has_value()) {
    FUSIONLLM_ASSIGN_OR_RETURN(found, workload::DescribeCheckpoint(job, base_directory, *newest.path));
    found.fetched_from = newest.from;
  }
  workload::AddSkipped(directory, newest.skipped, found);
  return found;
}

absl::StatusOr<CheckpointFound> FindFallbackCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                       const std::string& base_directory, const std::vector<archive::MirrorTarget*>& places,
                                                       const checkpoint::CheckpointFilter& eligible) {
  FUSIONLLM_ASSIGN_OR_RETURN(const archive::LatestCheckpoint newest, archive::FetchLatest(directory, places, eligible));
  CheckpointFound passed_over;
  workload::AddSkipped(directory, newest.skipped, passed_over);
  const std::vector<std::string>& skipped = passed_over.skipped;
  if (newest.path.has_value()) {
    FUSIONLLM_ASSIGN_OR_RETURN(CheckpointFound found, workload::DescribeCheckpoint(job, base_directory, *newest.path));
    found.skipped = skipped;
    return found;
  }
  const std::string& resume = job.spec.checkpoint->resume;
  if (resume == "auto" || resume == "never") {
    // Days of training are not started over because a site is away for an hour.
    return absl::DataLossError(absl::StrCat(
        "no checkpoint of this run is left that can be restored; what lies in sites can be once they are back, and spec.checkpoint.resume: "
        "never begins at step 0",
        skipped.empty() ? "" : "; ", absl::StrJoin(skipped, "; ")));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(CheckpointFound named, FindCheckpoint(job, directory, base_directory));
  named.skipped = skipped;
  if (eligible.unusable.contains(named.path)) {
    return absl::DataLossError(absl::StrCat("spec.checkpoint.resume: ", named.path, " cannot be restored"));
  }
  return named;
}

std::vector<broker::EmitEvent> StartupEvents(const CheckpointFound& start, int64_t step, const std::string& rules_kept) {
  std::vector<broker::EmitEvent> news;
  for (const std::string& sentence : start.skipped) news.push_back({.reason = "CheckpointSkipped", .step = step, .message = sentence});
  if (!start.fetched_from.empty()) {
    news.push_back({.reason = "CheckpointFetched",
                    .step = step,
                    .message = absl::StrCat("the newest whole checkpoint comes from ", start.fetched_from)});
  }
  if (!rules_kept.empty()) news.push_back({.reason = "DataRulesKept", .step = step, .message = rules_kept});
  if (!start.changed.empty()) {
    news.push_back({.reason = "JobChanged",
                    .step = step,
                    .message = absl::StrCat("the checkpoint was made by another version of this job: ", start.changed)});
  }
  return news;
}

absl::StatusOr<std::vector<std::string>> ResidualsIn(const std::string& checkpoint) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                             checkpoint::CheckpointReader::Open(checkpoint, checkpoint::SiteFilesPolicy::kSkip));
  std::vector<std::string> residuals;
  for (const checkpoint::FileEntry& file : reader.files_in_other_sites()) {
    if (checkpoint::ShardKindOf(file.name) != checkpoint::ShardKind::kResiduals) continue;
    residuals.insert(residuals.end(), file.tensors.begin(), file.tensors.end());
  }
  for (const auto& [name, tensor] : reader.tensors()) {
    const std::string file = std::filesystem::path(tensor.file->path()).filename();
    if (checkpoint::ShardKindOf(file) == checkpoint::ShardKind::kResiduals) residuals.push_back(name);
  }
  return residuals;
}

absl::StatusOr<int64_t> FirstSequence(const std::string& directory, const std::string& start) {
  if (std::filesystem::path(start).parent_path().lexically_normal() == std::filesystem::path(directory).lexically_normal()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::LoadManifest(start));
    return manifest.first_sequence;
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto there, checkpoint::ListCheckpoints(directory));
  return there.empty() ? 0 : there.front().sequence + 1;
}

absl::Status CheckStaged(const std::string& directory, const broker::CommitCheckpoint& commit) {
  for (const checkpoint::FileEntry& file : commit.files) {
    if (!file.site.empty()) continue;
    const std::string path = absl::StrCat(checkpoint::StagingFolder(directory, commit.step), "/", file.name);
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string sum, checkpoint::Sha256OfFile(path));
    if (sum != file.sha256) {
      return absl::DataLossError(
          absl::StrFormat("%s of step %d is not what its executor reported: its checksum is %s there, and was reported as %s", file.name,
                          commit.step, sum, file.sha256));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::CommittedCheckpoint> CommitCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                                 int64_t first_sequence, const broker::RunPlan& plan,
                                                                 const broker::CommitCheckpoint& commit,
                                                                 const workload::InputFingerprints& contents) {
  const std::string resolved = job::ToYaml(job);
  checkpoint::Manifest manifest{.job_name = job.metadata.name,
                                .spec_hash = HashOf(resolved),
                                .plan_hash = HashOf(plan.document),
                                .step = commit.step,
                                .first_sequence = first_sequence,
                                .samples_consumed = commit.samples_consumed,
                                .micro_batch_size = plan.plan.micro_batch_size,
                                .codec_limit = commit.codec_limit,
                                .contents = contents,
                                .seed = static_cast<uint64_t>(job.spec.training.seed),
                                .files = commit.files,
                                .resolved_job = resolved};
  for (const auto& [value, codec] : commit.codec_limits) {
    manifest.codec_limits.push_back({.value = value.first, .gradient = value.second, .codec = codec});
  }
  return checkpoint::CommitCheckpoint(directory, std::move(manifest), job.spec.checkpoint->keep);
}

}  // namespace fusionllm::services
