// The end of a step between stages: gradients of shared parameters, the global norm and loss, the decision of stage 0.
// Internal to lib/runtime. Blocking; used by the stage's thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/autodiff/training_graph.h"
#include "lib/runtime/message.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_program.h"

namespace fusionllm::runtime {

// One stage's share of what stage 0 combines.
struct StageReport {
  bool has_loss = false;
  float loss = 0;
  std::vector<std::pair<opdag::ParameterId, double>> sums_of_squares;
};

struct StepDecision {
  double norm = 0;
  float loss = 0;
  bool stop = false;
  bool checkpoint = false;
  // When the norm is not finite: the first parameter, in the order of names, whose gradient is to blame.
  opdag::ParameterId culprit = opdag::kNone;
};

// Of a report or a decision that cannot be ("decision from stage 0"). Internal: nothing that the user gave is wrong.
absl::Status Malformed(absl::string_view what);

class StepExchange {
 public:
  // All references must outlive the exchange.
  StepExchange(const autodiff::TrainingGraph& training, const StageProgram& program, ParameterStore& store, MessagePort& port,
               Inbox& inbox);

  // Sends local use gradients of shared parameters to their other users, takes theirs and combines all uses.
  absl::Status CombineSharedGradients(int64_t step);
  absl::Status SendReport(int64_t step, const StageReport& report);
  // On stage 0: waits for every other stage's report and combines: loss, and the norm with sums added in the order of parameter names.
  absl::StatusOr<StepDecision> CollectReports(int64_t step, const StageReport& own);
  absl::Status SendDecision(int64_t step, const StepDecision& decision);
  absl::StatusOr<StepDecision> AwaitDecision(int64_t step);

 private:
  const autodiff::TrainingGraph& training_;
  const StageProgram& program_;
  ParameterStore& store_;
  MessagePort& port_;
  Inbox& inbox_;
};

}  // namespace fusionllm::runtime
