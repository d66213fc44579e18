// What one machine takes for ops: the one model that every prediction of compute time comes from. An op whose very signature was measured
// takes what was measured; one whose time follows from other sizes of it takes that; any other is priced by the rates of its class, which
// were fitted to the measured ones (rate_fit.h) and say how far off they may be.
//
// Plain data: seconds, bytes, FLOPs, of the uncontended machine. A slower device that it emulates (computeScale) is the planner's business.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::estimator {

// Time of an op of one class: overhead_s + flops * seconds_per_flop + bytes * seconds_per_byte; with `specified` the larger of the last two
// alone, since arithmetic and memory traffic then have a peak each (gpu_specs.h).
struct OpRate {
  double overhead_s = 0;
  double seconds_per_flop = 0;
  double seconds_per_byte = 0;
  // Root mean square of (fitted - measured) / measured, each sample predicted by a fit that did not see it: what to expect of an op that
  // was not measured. kUnknownError where that cannot be known.
  double relative_error = 0;
  int samples = 0;         // 0: never measured
  bool specified = false;  // from public figures and assumptions; samples is 0
  // Half widths of the 95 % confidence intervals of the three rates, whose lower ends are cut at 0; absent where the samples cannot tell.
  std::optional<double> overhead_ci95_s, seconds_per_flop_ci95, seconds_per_byte_ci95;
  bool operator==(const OpRate&) const = default;
};

// The error of a class with one sample or none, whose rates are borrowed: may be twice as slow, or take no time.
inline constexpr double kUnknownError = 1;

struct CostModel {
  std::array<OpRate, opdag::kOpClassCount> rates;
  std::map<std::string, double> measured;  // seconds by OpSignature
  struct Inferred {
    double seconds = 0;
    double relative_error = 0;
  };
  std::map<std::string, Inferred> inferred;  // by OpSignature: from what the op took at other sizes, better than its class says
  double update_seconds_per_element = 0;     // norm and optimizer, for each element of a trainable parameter, once a step
  double data_seconds_per_byte = 0;          // to read or make the samples of a micro-batch
};

struct Estimate {
  double seconds = 0;
  bool measured = true;       // or free
  double relative_error = 0;  // of a fitted estimate
  bool inferred = false;      // CostModel::inferred
};

// Ops that cost nothing (OpClass::kFree) take 0 s.
Estimate EstimateOp(const CostModel& model, opdag::OpClass op_class, const std::string& signature, double flops, double bytes);

// Gives classes that were neither measured nor specified the median rates of those that were, of like classes (arithmetic or memory) if
// there are any, and kUnknownError. Returns how many it filled; 0 also when no class has samples.
int FillMissingRates(CostModel& model);

// The class of that opdag::Name.
std::optional<opdag::OpClass> ClassNamed(absl::string_view name);

}  // namespace fusionllm::estimator
