// The end of a step between stages: gradients of shared parameters, the global norm and loss, the decision of stage 0.
// Internal to lib/runtime. Blocking; used by the stage's thread.
//
// A stage first sends the gradients of its own uses of shared parameters (compression/rows.h: rows of zeros are left out). Only the stage
// that reports on such a parameter, the lowest that uses it, waits for the others' before its report; the rest take them while their
// report and the decision are under way. No stage waits for a gradient before it has sent its own, so there is no circle of waits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/autodiff/training_graph.h"
#include "lib/compression/spec.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/message.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

// One stage's share of what stage 0 combines.
struct StageReport {
  bool has_loss = false;
  float loss = 0;
  double counted = 1;  // share of the global batch's targets that count
  std::vector<std::pair<opdag::ParameterId, double>> sums_of_squares;
};

struct StepDecision {
  double norm = 0;  // of the gradients of the mean over the targets that count
  float loss = 0;
  double counted = 1;  // as in the report
  bool stop = false;
  bool checkpoint = false;
  // When the norm is not finite: the first parameter, in the order of names, whose gradient is to blame.
  opdag::ParameterId offending_parameter = opdag::kNone;
};

// What gradients are divided by: where the loss is itself a cross_entropy, the share of targets that count, 0 of which means that there
// are no gradients; else 1.
double GradientWeight(const autodiff::TrainingGraph& training, const StepDecision& decision);

// A decision as it travels, to stages and to replicas: little-endian, versioned with the protocol.
struct DecisionRecord {
  double norm;
  double counted;
  float loss;
  uint8_t stop;
  uint8_t checkpoint;
  uint8_t unused[2];
  int32_t offending_parameter;
  uint8_t unused_end[4];
};
DecisionRecord RecordOf(const StepDecision& decision);
// Errors: Internal (Malformed) for a record that cannot be of this graph; `from` is who sent it ("stage 0").
absl::StatusOr<StepDecision> DecisionOf(const DecisionRecord& record, const autodiff::TrainingGraph& training, absl::string_view from);

// Of a report or a decision that cannot be ("decision from stage 0"). Internal: nothing that the user gave is wrong.
absl::Status Malformed(absl::string_view what);

class StepCoordinator {
 public:
  // All references must outlive the exchange. Parameters that `codecs` does not name are exchanged exactly. `limit`
  // (null: none) holds from the next step on: messages describe themselves, so senders need not change at the same one.
  StepCoordinator(const autodiff::TrainingGraph& training, const StageProgram& program, const TiedCodecs& codecs,
                  std::shared_ptr<const CodecLimit> limit, ParameterStore& store, MessagePort& port, Inbox& inbox);

  // Sends local use gradients of shared parameters to their other users.
  absl::Status SendSharedGradients(int64_t step);
  // Takes those of the others and combines all uses.
  absl::Status CombineSharedGradients(int64_t step);
  // Whether this stage reports on a shared parameter, so that it must combine before its report.
  bool ReportsSharedGradients() const;
  absl::Status SendReport(int64_t step, const StageReport& report);
  // On stage 0: waits for every other stage's report and combines: loss, counted targets, and the norm with sums added in the order of
  // parameter names.
  absl::StatusOr<StepDecision> CollectReports(int64_t step, const StageReport& own);
  absl::Status SendDecision(int64_t step, const StepDecision& decision);
  absl::StatusOr<StepDecision> AwaitDecision(int64_t step);
  // After the evaluation that follows a step, on every stage: stage 0 waits until the stage that owns the loss has come here, too; the
  // others do not wait. What an evaluation sends over a slow link would else delay the next step, and be counted in it.
  absl::Status EndEvaluation(int64_t step);
  // Before and after each micro-batch of an evaluation, on every stage: all others wait until the stage that owns the loss has had the
  // window of micro-batches (EvaluationWindow) before the last one, so that what the slower stages hold is bounded. `samples` and
  // `micro_batch_size` as EvaluationPassAt has them.
  absl::Status AwaitEvaluationWindow(int64_t step, int micro_batch, int window);
  absl::Status EndEvaluationWindow(int64_t step, int micro_batch, int window, int64_t samples, int64_t micro_batch_size);
  // Samples of the evaluation that follows a step, on every stage: as the lowest stage that reads data has them. `own`: this stage's,
  // where `source_stage` is that stage.
  absl::StatusOr<int64_t> ShareEvaluationSize(int64_t step, int source_stage, int64_t own);

  // What error feedback keeps of the stage's uses of shared parameters: part of a checkpoint, on the host, zero before the first message.
  // By the names of parameter and op, "residual:PARAMETER@OP", so that a stage that has the op finds it again wherever the cuts are.
  std::vector<std::string> ResidualNames() const;
  // `name`: one of these.
  tensor::TensorView Residual(const std::string& name);

 private:
  struct Sender {  // of one local use
    compression::CodecSpec codec;
    std::vector<float> residual;
  };
  size_t RowOf(opdag::ParameterId parameter) const;  // elements

  const autodiff::TrainingGraph& training_;
  const StageProgram& program_;
  ParameterStore& store_;
  MessagePort& port_;
  Inbox& inbox_;
  const std::shared_ptr<const CodecLimit> limit_;
  std::map<int, Sender> senders_;             // by local use of a shared parameter
  std::map<std::string, int> residual_uses_;  // by name, of those with a lossy codec
};

}  // namespace fusionllm::runtime
