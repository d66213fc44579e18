#include "lib/scheduler/planned_pipeline.h"

#include <memory>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler {

LinkCodec PlannedLink::Codec() const {
  return {.codec = codec,
          .ratio = ratio,
          .forward_wire_bytes = forward_wire_bytes,
          .backward_wire_bytes = backward_wire_bytes,
          .loss_cost = loss_cost,
          .reason = codec_reason.empty() ? nullptr : std::make_shared<const std::string>(codec_reason),
          .producer_forward_s = producer_forward_s,
          .consumer_forward_s = consumer_forward_s,
          .producer_backward_s = producer_backward_s,
          .consumer_backward_s = consumer_backward_s};
}

}  // namespace fusionllm::scheduler
