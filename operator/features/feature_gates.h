// Features of the operator that can be turned off by name, as Kubernetes' own programs have them: --feature-gates and `featureGates`.
//
// A gate is for what stands by itself and may do harm that nobody has met yet; once it is general, it goes. Plain data.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lib/metrics/registry.h"

namespace fusionllm::op {

struct FeatureGates {
  bool scheduler_advice = true;
  bool measured_links = true;
  bool dry_run_trials = true;
  bool operator==(const FeatureGates&) const = default;
};

// kAlpha: off unless asked for; kBeta: on, and meant to stay; kGeneral: for good, and soon no gate any more.
enum class FeatureStage { kAlpha, kBeta, kGeneral };
// "ALPHA", "BETA", "GA".
absl::string_view Name(FeatureStage stage);

struct FeatureGate {
  const char* name;
  FeatureStage stage;
  bool FeatureGates::*on;
  const char* about;
};

inline constexpr FeatureGate kFeatureGates[] = {
    {"SchedulerAdvice", FeatureStage::kBeta, &FeatureGates::scheduler_advice,
     "Where there is a scheduler it is asked where a job runs fastest, before the job is placed."},
    {"MeasuredLinks", FeatureStage::kBeta, &FeatureGates::measured_links,
     "What running jobs measure between clusters is learned from their brokers, and told to the scheduler."},
    {"DryRunTrials", FeatureStage::kBeta, &FeatureGates::dry_run_trials,
     "Each cluster is asked by dry runs whether it would take an attempt's Pods, before anything is made."},
};

// By "Name=true,Other=false"; what is not named stays as it is. InvalidArgument names the gates there are, and then nothing is changed.
absl::Status SetFeatureGates(absl::string_view text, FeatureGates& gates);

// "SchedulerAdvice, MeasuredLinks, ..."
std::string FeatureGateNames();
// "SchedulerAdvice (BETA, default true): what it does", a line each: for --help.
std::string DescribeFeatureGates();

// The field table of `featureGates` (lib/job/schema.h says who reads it).
template <class V>
void Visit(V& v, FeatureGates& gates) {
  for (const FeatureGate& gate : kFeatureGates) v.Field(gate.name, gates.*gate.on, {}, gate.about);
}

class FeatureMetrics {
 public:
  explicit FeatureMetrics(metrics::Registry& registry);
  void Set(const FeatureGates& gates) const;

 private:
  metrics::Gauge enabled_;
};

}  // namespace fusionllm::op
