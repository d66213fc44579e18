#include "lib/workload/found_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/object_uri.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/data_rules.h"
#include "lib/job/default_micro_batch.h"
#include "lib/job/differences.h"
#include "lib/job/parse.h"
#include "lib/workload/forward_graph.h"
#include "lib/workload/job_learning_rate.h"
#include "lib/workload/stored_parameters.h"

namespace fusionllm::workload {
namespace {

constexpr size_t kMaxReportedDifferences = 8;
constexpr size_t kMaxReportedCheckpoints = 4;
constexpr char kFreshStartHint[] =
    "start over with another spec.checkpoint.path, spec.checkpoint.resume: never or, with fusionctl run, --fresh or another --output";
// Of what differs: what to do comes behind it, and of a broker in a cluster a KiB is kept (services/termination_sentence.h).
constexpr size_t kMaxMisfitBytes = 384;

// Warm-up and decay follow the number of steps, so that more of them may make the rate jump.
std::string ChangedLearningRate(const job::Training& then, const job::Training& now, int64_t steps_made) {
  if (then.steps == now.steps && then.schedule == now.schedule) return "";
  const int64_t next = steps_made + 1;
  const std::string before = absl::StrFormat("%.2g", LearningRateOf(then, next)),
                    after = absl::StrFormat("%.2g", LearningRateOf(now, next));
  if (next > now.steps || before == after) return "";
  return absl::StrFormat("the learning rate of step %d is %s instead of %s", next, after, before);
}

// What can only be gone on from with the same model is distinguished from what may change: steps, learning rate, batches, data, devices.
absl::Status Compare(job::FusionJob job, const std::string& base_directory, const checkpoint::CheckpointReader& reader,
                     CheckpointFound& found) {
  absl::StatusOr<job::FusionJob> then = job::ParseFusionJob(reader.manifest()->resolved_job, "resolved_job");
  if (!then.ok()) return absl::OkStatus();  // of a release that had other fields: nothing can be said
  found.made_by = *then;
  // As the run will keep them.
  const job::DataRules rules = job::DataRulesOfCheckpoint(then->spec.data);
  job::FixDataRules(rules, then->spec.data);
  job::FixDataRules(rules, job.spec.data);
  // More steps are why one goes on; a schedule that ends with the last of them is another one then, which is worth a word.
  if (job.spec.training.schedule.name == job::ScheduleName::kConstant) then->spec.training.steps = job.spec.training.steps;
  const std::vector<job::FieldDifference> differences = job::Differences(*then, job);
  std::vector<std::string> changed;
  if (!differences.empty()) changed.push_back(job::ToString(differences, kMaxReportedDifferences));
  found.contents = reader.manifest()->contents;
  // Of files that are named as they were: another name is reported above.
  const bool same_model = then->spec.model.graph == job.spec.model.graph && then->spec.model.init.from == job.spec.model.init.from;
  const std::string contents = same_model ? ChangedInputs(found.contents, FingerprintInputs(job, base_directory)) : "";
  if (!contents.empty()) changed.push_back(contents);
  const std::string rate = ChangedLearningRate(then->spec.training, job.spec.training, found.step);
  if (!rate.empty()) changed.push_back(rate);
  found.changed = absl::StrJoin(changed, "; ");
  const std::vector<job::FieldDifference> architecture = job::ArchitectureDifferences(differences);
  std::vector<std::string> why;
  if (!architecture.empty()) why.push_back(job::ToString(architecture, kMaxReportedDifferences));
  // A broker may not see the file of a graph; the executors do.
  if (const absl::StatusOr<opdag::Graph> graph = BuildForwardGraph(job, base_directory); graph.ok()) {
    FUSIONLLM_ASSIGN_OR_RETURN(ParameterMismatch misfit, CompareParameters(job, *graph, reader, ReadFor::kResume));
    if (!architecture.empty()) misfit.fields.clear();
    const std::string parameters = Describe(misfit, reader.path());
    if (!parameters.empty()) why.push_back(parameters);
  }
  found.other_model = absl::StrJoin(why, "; ");
  return absl::OkStatus();
}

// Before the planner chose them, releases recorded no sizes: they had the default.
int64_t MicroBatchSizeOf(const checkpoint::Manifest& manifest) {
  if (manifest.micro_batch_size > 0) return manifest.micro_batch_size;
  const absl::StatusOr<job::FusionJob> then = job::ParseFusionJob(manifest.resolved_job, "resolved_job");
  if (!then.ok()) return 0;
  const job::Training& training = then->spec.training;
  return training.micro_batch_size > 0 ? training.micro_batch_size : job::DefaultMicroBatchSize(training.global_batch_size);
}

}  // namespace

absl::StatusOr<CheckpointFound> DescribeCheckpoint(const job::FusionJob& job, const std::string& base_directory, const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                             checkpoint::CheckpointReader::Open(path, checkpoint::SiteFilesPolicy::kSkip));
  if (!reader.manifest().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.checkpoint.resume: ", path,
                                                   " is not a checkpoint of a run; use spec.model.init.from to start from its parameters"));
  }
  if (const int64_t step = reader.manifest()->step; step > job.spec.training.steps) {
    if (const std::string& other = reader.manifest()->job_name; other != job.metadata.name) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s is of the job %s, not of %s, and has seen more than its %s; take another folder, or start over (--fresh, "
                          "spec.checkpoint.resume: never)",
                          reader.path(), other, job.metadata.name, base::Pluralize(job.spec.training.steps, "step")));
    }
    return absl::FailedPreconditionError(
        absl::StrFormat("spec.training.steps is %d, and %s has seen %s already; give more steps, another folder, or start over (--fresh, "
                        "spec.checkpoint.resume: never)",
                        job.spec.training.steps, reader.path(), base::Pluralize(step, "step")));
  }
  CheckpointFound found{.step = reader.manifest()->step, .path = reader.path(), .micro_batch_size = MicroBatchSizeOf(*reader.manifest())};
  // Who switched the guard off wants the job's own codecs.
  if (job.spec.compression.guard == compression::GuardMode::kAuto) {
    found.codec_limit = reader.manifest()->codec_limit;
    for (const checkpoint::CodecLimit& limit : reader.manifest()->codec_limits) {
      found.codec_limits[{limit.value, limit.gradient}] = limit.codec;
    }
  }
  FUSIONLLM_RETURN_IF_ERROR(Compare(job, base_directory, reader, found));
  return found;
}

void AddSkipped(const std::string& directory, const std::vector<checkpoint::SkippedCheckpoint>& skipped, CheckpointFound& found) {
  std::vector<std::string> reasons;
  const checkpoint::SkippedCheckpoint* newer = nullptr;
  for (const checkpoint::SkippedCheckpoint& one : skipped) {
    found.skipped.push_back(absl::StrFormat("%s is passed over: %s", one.path, one.reason));
    reasons.push_back(absl::StrContains(one.reason, one.path) ? one.reason : absl::StrCat(one.path, ": ", one.reason));
    if (newer == nullptr && one.newer_format) newer = &one;
  }
  if (found.path.empty() && !reasons.empty()) {
    const size_t more = reasons.size() - std::min(reasons.size(), kMaxReportedCheckpoints);
    reasons.resize(reasons.size() - more);
    found.unusable = absl::StrCat(
        "NoUsableCheckpoint: there are checkpoints in ", directory, ", and none can be gone on from: ", absl::StrJoin(reasons, "; "),
        more > 0 ? absl::StrCat("; and ", more, " more") : "", "; mend them or move them away, or ", kFreshStartHint);
  } else if (newer != nullptr) {
    found.unusable = absl::StrFormat(
        "NewerCheckpoint: of the checkpoints in %s the newest is of a later release: %s: %s; go on with that release, move it away to "
        "go on from %s, or %s",
        directory, newer->path, newer->reason, found.path, kFreshStartHint);
  }
}

absl::Status CheckCanStartFrom(const CheckpointFound& found) {
  if (!found.unusable.empty()) return absl::FailedPreconditionError(found.unusable);
  if (found.other_model.empty()) return absl::OkStatus();
  const std::string misfit = base::TruncateUtf8(found.other_model, kMaxMisfitBytes);
  return absl::FailedPreconditionError(absl::StrCat("OtherModel: the checkpoint ", found.path,
                                                    " is of another model than the job's: ", misfit,
                                                    misfit.size() < found.other_model.size() ? " ..." : "", "; restore what differs, or ",
                                                    kFreshStartHint, "; spec.model.init.from starts the new model from what fits it"));
}

absl::StatusOr<CheckpointFound> PreviewCheckpoint(const job::FusionJob& job, const std::string& directory,
                                                  const std::string& base_directory) {
  const std::string& resume = job.spec.checkpoint->resume;
  if (resume == "never") return CheckpointFound{};
  if (resume != "auto") {
    const std::filesystem::path path = resume;
    const std::string absolute = path.is_absolute() ? resume : (std::filesystem::path(base_directory) / path).string();
    if (const absl::Status whole = checkpoint::VerifyToRestore(absolute, checkpoint::DamagedCopies::kKeep); !whole.ok()) {
      return absl::Status(whole.code(), absl::StrCat("spec.checkpoint.resume: ", whole.message()));
    }
    return DescribeCheckpoint(job, base_directory, absolute);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::NewestCheckpoint newest,
                             checkpoint::FindLatestComplete(directory, {}, checkpoint::DamagedCopies::kKeep));
  CheckpointFound found;
  if (newest.path.has_value()) {
    FUSIONLLM_ASSIGN_OR_RETURN(found, DescribeCheckpoint(job, base_directory, *newest.path));
  }
  AddSkipped(directory, newest.skipped, found);
  if (job.spec.checkpoint->replica.has_value() || base::IsUri(job.spec.checkpoint->path)) found.unusable.clear();
  return found;
}

}  // namespace fusionllm::workload
