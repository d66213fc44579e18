// What travels between endpoints: a small fixed header and a block of bytes.
#pragma once

#include <cstdint>

namespace fusionllm::transport {

// Lower values overtake higher ones at every queue on the way.
enum class Priority : uint8_t { kControl = 0, kTensor = 1, kParameterSync = 2, kCheckpoint = 3 };
inline constexpr int kPriorityCount = 4;

struct MessageHeader {
  uint64_t job_hash = 0;
  uint32_t epoch = 0;  // plan epoch; see Endpoint::CancelEpoch
  int64_t step = 0;
  int32_t micro_batch = 0;
  uint32_t channel = 0;   // edge id, or a tag of the control protocol
  uint8_t direction = 0;  // 0: forward (activation), 1: backward (gradient); the transport only carries it
  Priority priority = Priority::kTensor;
  // Earliest delivery on CLOCK_MONOTONIC, 0: at once. Set by link emulation alone, where both ends share one clock.
  int64_t not_before_ns = 0;

  bool operator==(const MessageHeader&) const = default;
};

// Whether it is of an epoch before `epoch`, and not of the control plane, which has none.
inline bool IsStale(const MessageHeader& header, uint32_t epoch) { return header.epoch < epoch && header.priority != Priority::kControl; }

}  // namespace fusionllm::transport
