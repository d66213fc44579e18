// The seam between planning and compression: what a codec would make of a link's traffic. The scheduler knows no codec, only this.
//
// Implementations are pure and thread-safe. The adapter of the compression library implements it for real jobs; ExactPolicy sends
// everything as it is; LadderPolicy is a plain table, enough for tests and for what-if studies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fusionllm::scheduler {

// What one pair of stages exchanges per micro-batch, and over what.
struct LinkTraffic {
  int64_t forward_bytes = 0;           // dense activations that may be lossy
  int64_t forward_lossless_bytes = 0;  // labels, masks
  int64_t backward_bytes = 0;          // dense gradients
  // Rates this pair can count on, its share of shared resources included.
  double forward_bytes_per_s = 0;
  double backward_bytes_per_s = 0;
  double forward_latency_s = 0;
  double backward_latency_s = 0;
  // The time to hide behind: the largest stage time per micro-batch (forward + backward). Each direction has a wire of its own.
  double target_s = 0;
};

struct LinkCodec {
  std::string codec = "fp32";  // text for the plan; fp32: exact
  double ratio = 1;            // dense bytes / wire bytes of the lossy part, both directions together
  int64_t forward_wire_bytes = 0;
  int64_t backward_wire_bytes = 0;
  double loss_cost = 0;  // expected relative increase of the loss; 0: exact
  // Device time per micro-batch on a device with time_scale 1.
  double sender_forward_s = 0, receiver_forward_s = 0;    // sender = stage of the producer
  double sender_backward_s = 0, receiver_backward_s = 0;  // sender still the stage of the producer: it decodes the gradient
};

class LinkCodecPolicy {
 public:
  virtual ~LinkCodecPolicy() = default;
  // The least lossy choice that hides the link behind target_s, or the strongest allowed when none does.
  virtual LinkCodec Choose(const LinkTraffic& traffic) const = 0;
  // The most that Choose may shrink a link, for search heuristics; >= 1.
  virtual double MaxRatio() const = 0;
};

class ExactPolicy final : public LinkCodecPolicy {
 public:
  LinkCodec Choose(const LinkTraffic& traffic) const override;
  double MaxRatio() const override { return 1; }
};

// One step of a ladder from exact to coarse.
struct CodecRung {
  std::string name;
  double forward_ratio = 1;  // dense / wire
  double backward_ratio = 1;
  double loss_cost = 0;
};

// Takes the first rung whose transfer time hides behind the target in both directions, else the last rung. Rungs in order of loss.
class LadderPolicy final : public LinkCodecPolicy {
 public:
  explicit LadderPolicy(std::vector<CodecRung> rungs) : rungs_(std::move(rungs)) {}
  LinkCodec Choose(const LinkTraffic& traffic) const override;
  double MaxRatio() const override;

 private:
  std::vector<CodecRung> rungs_;
};

}  // namespace fusionllm::scheduler
