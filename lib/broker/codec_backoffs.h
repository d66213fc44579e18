// Less aggressive codecs. A loss that leaves its trend under compression, or is NaN or infinite, is answered with them; what senders find
// out about theirs, and have done about it already, is reported and kept for whatever plan comes next.
//
// Where there are checkpoints the loss leads to another plan, at the boundary of a step: under less aggressive codecs other cuts may be
// better. Where there are none the codecs alone change, where they are. Which it is, its owner does.
//
// Events in, verdicts out; it orders nothing but what is reported. Not thread-safe.
//
//   limit of the run  event                                      next                           action
//   any               OnStep, the loss leaves its trend, kAuto   less aggressive than in force  true; CompressionBackoff
//   any               OnStep, the same under kWarn               unchanged                      CompressionBackoff, once in an epoch
//   any               OnNotFinite, the first time, kAuto         less aggressive than in force  true; CompressionBackoff
//   any               OnNotFinite, again, kAuto                  exact                          true; CompressionBackoff
//   limit of a value
//   any               OnMeasured, its sender uses another codec  the less aggressive of both    CompressionBackoff where it changes
//   any               OnMeasured, its sender keeps its codec     unchanged                      CompressionBackoff, once for a sender
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "lib/broker/action_queue.h"
#include "lib/broker/run_options.h"
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/spec.h"

namespace fusionllm::broker {

class CodecBackoffs {
 public:
  explicit CodecBackoffs(const RunOptions& options);
  void Adopt(const std::string& limit, CodecLimits limits);

  std::string limit() const;  // as RequestPlan has it
  const CodecLimits& limits() const { return codec_limits_; }

  void BeginEpoch();
  void OnMeasured(const StageMeasured& event, const RunPlan& plan, ActionQueue& queue);
  // True: the limit is another one.
  bool OnStep(const StepRecord& record, const RunPlan& plan, ActionQueue& queue);
  // A stage has ended with numbers that are not finite, as `where` says. The first time less aggressive codecs follow; when that does not
  // help, compression is ruled out as the cause. True: the run goes on under the new limit, from its last checkpoint.
  bool OnNotFinite(const StageEnded& event, const std::string& where, int64_t last_step, const RunPlan& plan, ActionQueue& queue);

 private:
  void SetLimit(const std::string& limit);
  std::optional<compression::CodecSpec> MostAggressiveInForce(const RunPlan& plan) const;
  void EmitBackoff(const StageMeasured& event, const CodecBackoff& found, const RunPlan& plan, ActionQueue& queue) const;

  compression::GuardMode guard_ = compression::GuardMode::kAuto;
  bool codecs_asked_for_ = false;
  bool checkpoints_ = false;

  compression::LossDivergenceDetector trend_;
  bool trend_warning_emitted_ = false;  // in this epoch, where nothing else can be done
  std::optional<compression::CodecSpec> codec_limit_;
  CodecLimits codec_limits_;                                     // that senders have found
  std::set<std::tuple<std::string, std::string, bool>> warned_;  // of (device, value, gradient) whose codec stays
  int backoffs_from_not_finite_ = 0;
};

}  // namespace fusionllm::broker
