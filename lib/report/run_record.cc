#include "lib/report/run_record.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace fusionllm::report {

namespace {

double MedianFromTheThirdOn(const Run& run, double StepPoint::*figure) {
  const size_t own = OwnSteps(run);
  if (own == 0) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values;
  for (size_t i = run.steps.size() - own + (own > 2 ? 2 : 0); i < run.steps.size(); ++i) values.push_back(run.steps[i].*figure);
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

int64_t MicroBatchesOf(const plan::Plan& plan, int replica) {
  if (plan.replicas <= 1) return plan.micro_batches;
  const auto r = static_cast<size_t>(replica);
  return r < plan.micro_batches_by_replica.size() ? plan.micro_batches_by_replica[r] : 0;
}

std::string DeviceOf(const plan::Stage& stage, int replica) {
  const auto r = static_cast<size_t>(replica);
  return r < stage.devices.size() ? stage.devices[r] : "";
}

plan::Replica RankOf(const plan::Stage& stage, int replica) {
  const auto r = static_cast<size_t>(replica);
  return r < stage.by_replica.size() ? stage.by_replica[r]
                                     : plan::Replica{.compute_seconds = stage.compute_seconds, .memory_bytes = stage.memory_bytes};
}

int PipelinesOf(const plan::Plan& plan) {
  size_t most = 1;
  for (const plan::Stage& stage : plan.stages) most = std::max(most, stage.devices.size());
  return std::min(plan.replicas, static_cast<int>(most));
}

std::map<std::pair<std::string, std::string>, int64_t> ChainBytes(const plan::Plan& plan) {
  std::map<std::pair<std::string, std::string>, int64_t> bytes;
  for (const plan::Stage& stage : plan.stages) {
    for (size_t i = 1; i < stage.chain.size(); ++i) {
      const std::string from = DeviceOf(stage, stage.chain[i - 1]), to = DeviceOf(stage, stage.chain[i]);
      bytes[{from, to}] = bytes[{to, from}] = stage.sync_bytes;
    }
  }
  return bytes;
}

std::optional<int64_t> BytesBetweenReplicas(const Run& run) {
  if (!run.plan || run.plan->replicas <= 1 || run.plans != 1 || !run.summary) return std::nullopt;
  std::map<std::string, int> stage_of;
  for (const StageTotal& rank : run.summary->stages) stage_of[rank.device] = rank.index;
  int64_t bytes = 0;
  for (const LinkTotal& link : run.summary->links) {
    const auto src = stage_of.find(link.src), dst = stage_of.find(link.dst);
    if (src != stage_of.end() && dst != stage_of.end() && src->second == dst->second) bytes += link.bytes;
  }
  return bytes;
}

size_t OwnSteps(const Run& run) { return run.steps.size() - std::min(run.earlier_steps, run.steps.size()); }

double StepsSent(const Run& run) {
  return static_cast<double>(std::max<int64_t>({1, run.steps_made, static_cast<int64_t>(OwnSteps(run))}));
}

double MedianTokensPerSecond(const Run& run) { return MedianFromTheThirdOn(run, &StepPoint::tokens_per_second); }
double MedianSamplesPerSecond(const Run& run) { return MedianFromTheThirdOn(run, &StepPoint::samples_per_second); }

double MedianStepSeconds(const Run& run) {
  if (run.summary && run.summary->median_step_s > 0) return run.summary->median_step_s;
  return MedianFromTheThirdOn(run, &StepPoint::seconds);
}

std::vector<std::string> LostDevices(const Run& run) {
  std::vector<std::string> sentences;
  for (const Event& event : run.events) {
    if (event.reason == "ExecutorLost") {
      sentences.push_back(absl::StrCat(event.device, " was lost after step ", event.step));
    } else if (!sentences.empty() && (event.reason == "Replanned" || event.reason == "SpareActivated")) {
      absl::StrAppend(&sentences.back(), "; ", event.reason, ": ", event.message);
    }
  }
  return sentences;
}

int64_t BytesBetweenSites(const Run& run) {
  if (!run.summary) return 0;
  int64_t bytes = 0;
  for (const LinkTotal& link : run.summary->links) {
    const auto src = run.site_of.find(link.src);
    const auto dst = run.site_of.find(link.dst);
    if (src != run.site_of.end() && dst != run.site_of.end() && src->second != dst->second) bytes += link.bytes;
  }
  return bytes;
}

const StepPoint* FindStep(const Run& run, int64_t step) {
  const auto found =
      std::lower_bound(run.steps.begin(), run.steps.end(), step, [](const StepPoint& point, int64_t value) { return point.step < value; });
  return found == run.steps.end() || found->step != step ? nullptr : &*found;
}

std::optional<double> LossAt(const Run& run, int64_t step) {
  const StepPoint* const point = FindStep(run, step);
  return point == nullptr ? std::nullopt : std::optional(point->loss);
}

}  // namespace fusionllm::report
